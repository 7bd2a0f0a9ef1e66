"""What the pages' machinery makes of a site without mistakes, and of a change in it."""

import re

import pytest

from tests.sites import Site, diff_of, fails, run_of, warnings

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


SAYS = """\
import helper

print("it says", helper.WORD)
"""
DRAW = "import random\n\nprint('drawn', random.random())\n"


def paged(site):
    """Pages enough for sphinx to read them in parallel, some with commands."""
    site.write("says.py", SAYS)
    site.write("helper.py", "WORD = 'one'\n")
    site.write("draw.py", DRAW)
    pages = {
        "says": run_of("python says.py", expect="it says"),
        "draws": run_of("python draw.py", expect="drawn"),
        "fails": run_of("echo broken; exit 3", expect="broken", status=3),
        "shows": run_of(
            *["seq 30", "echo {multigpu}"], expect="^17$", show="2 1"
        ),
        "cluster": "\n.. not-run:: it needs a cluster\n\n   srun x.py\n\nSo ``srun x.py``.\n",
        "text": "\nNothing but words, and ``python says.py``.\n",
    }  # fmt: skip
    for name, text in pages.items():
        site.write(f"docs/pages/{name}.rst", f"{name}\n{'=' * 20}\n\nProse.\n{text}")


def built(site, *options, builder="html", out=None):
    """Build, and return the pages that were read for it."""
    status, output = site.build(builder, *options, out=out)
    assert status == 0, output
    read = re.search(r"(?m)^READ(.*)$", output)
    return {name.removeprefix("pages/") for name in read[1].split()} if read else set()


def drawn(site):
    return re.search(r"drawn (0\.\d+)", site.built("html/pages/draws.html"))[1]


def test_what_is_built_follows_the_files(site):
    paged(site)
    assert len(built(site)) == 8
    assert built(site) == set()
    number, says = drawn(site), "html/pages/says.html"
    assert "it says one" in site.built(says)
    assert built(site, "-E") and drawn(site) == number  # read again, but not run again

    site.write("helper.py", "WORD = 'two'\n")  # says.py, which the command names, imports it
    assert built(site) == {"says"}
    assert "it says two" in site.built(says)

    site.write("draw.py", DRAW + "# changed\n")
    assert built(site) == {"draws"} and drawn(site) != number

    edit, page = site.lesson.edits[3], f"html/pages/{site.lesson.page}.html"
    assert "# changed" not in words(site.built(page))
    line = site.line_of(edit)
    site.edit("multigpu.py", line, f"{line}  # changed")
    site.python("-m", "tools.pages", "confirm")
    read = built(site)
    assert site.lesson.page in read and not read & {"says", "draws", "text"}
    assert f"{line}  # changed" in words(site.built(page))

    line = site.line_beside(edit)  # what both scripts share: nothing to confirm
    for script in ("single_gpu.py", "multigpu.py"):
        site.edit(script, line, f"{line}  # shared")
    assert site.lesson.page in built(site)
    assert f"{line}  # shared" in words(site.built(page))


def words(html):
    return re.sub("<[^>]+>", "", html).replace("&quot;", '"').replace("&#x27;", "'")


def test_in_parallel_it_is_the_same(site):
    paged(site)
    built(site)
    built(site, "-j2", "-d", "docs/_build/doctrees2", out="parallel")
    pages = [path.relative_to(site.docs / "_build" / "html")
             for path in (site.docs / "_build" / "html").rglob("*.html")]  # fmt: skip
    assert len(pages) >= 9
    for page in pages:
        assert site.built(f"parallel/{page}") == site.built(f"html/{page}")

    # So are the complaints, those about all pages together included.
    site.add("docs/pages/text.rst", run_of("false") + "\nAnd ``make nothing``.\n")
    site.add("docs/pages/cluster.rst", "\n.. not-run:: why not\n\n   true\n")
    site.add("docs/pages/draws.rst", "\n.. code-block:: sh\n\n   true\n")
    site.edit(site.page, diff_of(site.lesson.edits[0]), "")
    one = warnings(fails(site))
    assert len(one) == 5
    assert one == warnings(fails(site, options=["-j2", "-d", "docs/_build/doctrees3"]))


def test_as_text_it_has_the_diff_and_the_output(site):
    paged(site)
    built(site, builder="text")
    text = site.built(f"text/pages/{site.lesson.page}.txt")
    for edit in site.lesson.edits:
        for line in edit.lines:
            assert (line.sign + line.text).rstrip() in text
    assert "it says one" in site.built("text/pages/says.txt")
    shows = site.built("text/pages/shows.txt")
    assert re.search(r"\$ seq 30\s+1\s+2\s+⋮ 27 more lines\s+30\n", shows)
    assert f"$ echo {site.lesson.run}" in shows
    assert "not run here: it needs a cluster" in site.built("text/pages/cluster.txt")
    assert "exit status 3" in site.built("text/pages/fails.txt")


def test_a_long_command_is_continued_and_each_block_shows_its_lines_of_one_run(site):
    pieces = "'with a quoted   piece of its own'"
    line = f"echo {pieces} {' '.join(['and-another-word'] * 6)} end"
    lines = line, "date +%N", "echo kept for the code"
    runs = [run_of(*lines, expect="kept for", lines=shown) for shown in ("1 2", "2 2")]
    site.write("docs/pages/long.rst", f"Long\n====\n\nProse.\n{runs[0]}\n{runs[1]}")
    built(site)
    shown = words(site.built("html/pages/long.html"))
    assert "kept for the code" not in shown and shown.count(pieces) == 1
    moments = re.findall(r"\$ date \+%N\s+(\d+)", shown)
    assert len(moments) == 2 and len(set(moments)) == 1
    commands = re.search(r"(?m)^\$ ((?:.*\\\n)*.*)", shown)[1]
    assert pieces in commands and commands.count("\n") == 1
    assert re.sub(r" \\\n +", " ", commands) == line

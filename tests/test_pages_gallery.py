"""Pages as docs/conf.py builds them: code cells, figures, notebooks."""

import ast
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import LESSONS, ROOT
from tests.sites import Site, end_of, page_of, run_of, wait_until
from tools import processes

for needed in ("sphinx_gallery", "furo", "matplotlib"):
    pytest.importorskip(needed, reason=f"no {needed}: make docs installs it")
nbformat = pytest.importorskip("nbformat", reason="no nbformat: make docs installs it")

from tools.pages import notebook  # noqa: E402

SAYS = "import helper\n\nprint('it says', helper.WORD)\n"
CODE = """
# %%
import lab

log = lab.run("python says.py")
print("cell:", log.strip(), lab.run("sleep 3600") or "and no more yet")
figure, axes = lab.picture("A line that rises")
axes.plot([1, 2])
"""


def gallery_page(name, rst, code="", **end):
    """A page of docs/pages. Its first block is only the title, as gallery requires."""
    end = "".join(f"# {line}".rstrip() + "\n" for line in end_of(name, **end).split("\n"))
    title, underline, *rest = rst.split("\n")
    body = "\n".join(f"# {line}".rstrip() for line in rest)
    head = f'# %% [markdown]\n"""\n{title}\n{underline}\n"""\n# %% [markdown]\n{body}\n'
    return f"{head}{code}\n# %% [markdown]\n{end}"


JUNK = [
    "tried.py", "data/b.py", "docs/notes.rst", "docs/pages/notes.rst", "docs/labs/tried.py",
    "docs/pages/0_intro (copy).py", "docs/pages/old/README.rst", "docs/recorded/x.txt",
    "docs/_static/series.css~", "docs/pages/.ipynb_checkpoints/0_intro-checkpoint.py",
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Two pages, built after a build was killed, and amid files that git does not track."""
    site = Site(tmp_path_factory.mktemp("gallery") / "a site", conf=None)
    shutil.rmtree(site.docs)
    ours = "pages", "series", "recorded", "_build", "__pycache__", "lessons.toml"
    shutil.copytree(ROOT / "docs", site.docs, ignore=shutil.ignore_patterns(*ours))
    site.write("says.py", SAYS)
    site.write("helper.py", "WORD = 'one'\n")
    pages = ["0_intro", site.lesson.page]
    toctree = "".join(f"   series/{page}\n" for page in pages)
    site.write("docs/index.rst", f"Index\n=====\n\nTwo pages.\n\n.. toctree::\n\n{toctree}")
    for name in ("index", "workshop"):
        site.write(f"docs/pages/{name}.rst", ":orphan:\n\nPages\n=====\n\nNone.\n")
    intro = "Intro\n=====\n\nHere.\n" + run_of("python says.py", expect="it says")
    intro += run_of("sleep 3600", elsewhere="an hour")
    following = f":doc:`{site.lesson.page}`"
    site.write("docs/pages/0_intro.py", gallery_page("0_intro", intro, CODE, next=following))
    site.page = f"docs/pages/{site.lesson.page}.py"
    script = "\nThe whole script\n----------------\n\n.. lesson-script:: multigpu\n"
    site.write(site.page, gallery_page(site.lesson.page, page_of(site.lesson) + script))
    assert site.record()[0] == 0
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=site.root, check=True)
    for name in JUNK:
        (site.root / name).parent.mkdir(parents=True, exist_ok=True)
        (site.root / name).write_bytes(b"\x80\x04\xff\xfe\0 not UTF-8")
    (site.root / "docs/pages/.#0_intro.py").symlink_to("somebody@somewhere.4711")  # by emacs
    html = site.docs / "_build" / "html" / "series"
    words = [sys.executable, "-m", "tools.pages", "build"]
    with processes.Process(words, cwd=site.root) as build:
        wait_until(lambda: html.exists() or build.process.poll() is not None, 600)
    status, output = site.make_docs()
    assert status == 0, output
    assert f"left out, since git does not track it: {site.root}/tried.py\n" in output
    return site


def page(site, name):
    """The HTML of a page, and its text."""
    built = site.built(f"html/series/{name}.html")
    return built, html.unescape(re.sub("<[^>]+>", "", built))


def test_the_site_has_the_pages_of_the_project(site):
    built = {path.name for path in (site.docs / "_build/html/series").iterdir()}
    assert built == {f"{page}.html" for page in ("0_intro", "index", "workshop", site.lesson.page)}
    assert not list((site.docs / "_build/html").rglob("*tried*"))


def test_a_page_shows_what_was_recorded_and_figures_with_words(site):
    intro, text = page(site, "0_intro")
    assert "cell: it says one and no more yet" in text and "\nit says one" in text
    assert '<svg class="picture wide" aria-hidden="true" aria-label="A line that rises"' in intro
    below = '<figcaption>A line that rises</figcaption></figure><details class="picture-code">'
    assert below in intro
    assert 'aria-current="page">1 Intro</strong>' in intro
    assert '<meta name="description" content="Here.">' in intro
    assert "Edit this page" not in text  # its address is not known


def test_a_page_shows_edits_and_scripts(site):
    built, _ = page(site, site.lesson.page)
    whole = built.rpartition("The whole script at this point, ")[2]
    code = re.findall(r'<span class="l" data-n="\d+">(.*?)\n</span>', whole)
    script = site.read("multigpu.py").splitlines()
    shown = [html.unescape(re.sub("<[^>]+>", "", line)) for line in code]
    assert shown[: len(script)] == script
    assert "<mark>DistributedSampler</mark>" in built
    text = site.built(f"html/text/series/{site.lesson.page}.txt")
    for edit in site.lesson.edits[:3]:
        for line in edit.lines:
            assert not line.counted or (line.sign + line.text).rstrip() in text


def test_no_page_shows_anything_old(site):
    """What a changed file makes stale is an error until it is recorded and confirmed."""
    site.write("helper.py", "WORD = 'two'\n")  # says.py imports it
    line = site.line_of(site.lesson.edits[3])
    site.edit("multigpu.py", line, f"{line}  # changed")
    address = "https://github.com/you/name"
    site.edit("docs/conf.py", 'repository = ""', f'repository = "{address}"')
    quiet, warns = "import lab\n", "import lab, warnings\n\nwarnings.warn('old')\n"
    site.edit("docs/pages/0_intro.py", quiet, warns)
    status, output = site.make_docs()
    assert status != 0
    assert "0_intro: a recording is out of date: python says.py\n" in output
    assert "Traceback" not in output
    lost = "# Here.\n\n# %% [markdown] And there.\n# No."
    site.edit("docs/pages/0_intro.py", "# Here.", lost)
    status, output = site.make_docs()
    assert status != 0 and "no page shows what follows a cell's marker: And there." in output
    site.edit("docs/pages/0_intro.py", lost, "# Here.")
    status, output = site.record()
    assert status == 0 and "1 of 1 runs do what their pages say" in output
    status, output = site.make_docs()
    assert status != 0 and "python -m tools.pages confirm" in output
    assert "a code cell warns" in output
    site.edit("docs/pages/0_intro.py", warns, quiet)
    assert site.python("-m", "tools.pages", "confirm", "multigpu")[0] == 0
    status, output = site.make_docs()
    assert status == 0, output
    intro, text = page(site, "0_intro")
    assert "cell: it says two" in text and "\nit says two" in text
    assert "  # changed" in page(site, site.lesson.page)[1]
    # The repository, its issues and the source of a page are linked only if their address is known.
    for path in ("/edit/main/docs/pages/0_intro.py", "/issues/new/choose", ""):
        assert f'href="{address}{path}"' in intro

    # After a change in one page, only that page is read anew.
    doctree = site.docs / f"_build/doctrees/series/{site.lesson.page}.doctree"
    read = doctree.stat().st_mtime_ns
    site.edit("docs/pages/0_intro.py", "# Here.", "# There.")
    status, output = site.make_docs()
    assert status == 0, output
    assert ">There." in site.built("html/series/0_intro.html")
    assert doctree.stat().st_mtime_ns == read


# Notebooks --------------------------------------------------------------------------------------

EDIT = LESSONS["multigpu"].edits[3]
TEXT = f"""\
A section
---------

Prose with ``literal`` words and `a link <https://pytorch.org/>`__.

.. lesson-diff:: multigpu
   :edit: {EDIT.name}
   :confirmed: 000000000000

   Because of ``this``.

.. run::
   :expect: usage
   :status: 2

   python single_gpu.py --nope
   {{multigpu}}

.. not-run:: it needs a cluster

   srun python multinode.py

.. code-block:: python

   mind = "the gap"

.. list-table::
   :header-rows: 1

   * -
     - ``one``
   * - two
     - three,
       or four

See :doc:`another page </x>`, 10\\ :sup:`-3`.
"""


def test_a_page_as_a_notebook():
    code = 'import lab\nlab.run("python utils.py")'
    made = notebook.make([("text", "Title\n====="), ("text", TEXT), ("code", code)])
    nbformat.validate(made)
    title, first, text, run, rest, last = [cell.source for cell in made.cells]
    assert (title, last) == ("# Title", code) and "```sh\nsrun python multinode.py\n```" in rest
    assert "|  | `one` |\n|---|---|\n| two | three, or four |\n" in rest
    assert '```python\nmind = "the gap"\n```' in rest
    assert rest.endswith("See *another page*, 10<sup>-3</sup>.")
    assert text.startswith(
        "## A section\n\nProse with `literal` words and [a link](https://pytorch.org/)."
    )
    assert "Because of `this`." in text and "confirmed" not in text
    diff = re.search(r"```diff\n(.*?)\n```", text, re.DOTALL)[1].split("\n")
    changed = [line for line in diff if line.startswith(("+", "-"))]
    lines = [(line.sign + line.text).rstrip() for line in EDIT.lines if line.text.strip()]
    assert changed == ["--- multigpu@3", "+++ multigpu@4", *lines]
    start = '%%bash --no-raise-error\ncd "$(python fresh.py)"; set -eo pipefail'
    assert run == f"{start}\npython single_gpu.py --nope\n{LESSONS['multigpu'].run}"

    # It contains what its commands and cells need, and nothing else.
    assignment = next(node for node in ast.parse(first).body if isinstance(node, ast.Assign))
    files = ast.literal_eval(assignment.value)
    names = {"guard.py", "multigpu.py", "single_gpu.py", "utils.py"}
    assert set(files) == {"fresh.py", "lab.py", *names}
    assert all(files[name] == (ROOT / name).read_text() for name in names)


def test_parts_of_one_run_share_a_folder_in_a_notebook(tmp_path):
    lines = "   echo one > kept\n   cat kept\n"
    parts = [f".. run::\n   :expect: one\n   :lines: {n} {n}\n\n{lines}\n" for n in (1, 2)]
    made = notebook.make([("text", "Title\n====="), ("text", "\n".join(parts))])
    magic, first = made.cells[-2].source.split("\n", 1)
    second = made.cells[-1].source.removeprefix("%%bash\n")
    assert magic == "%%bash"  # which raises if the command fails
    shutil.copy(ROOT / "docs" / "fresh.py", tmp_path)

    def ran(cell):
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-c", cell], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    assert (ran(second).returncode, ran(second).stdout) == (1, "first run the cells above\n")
    assert (ran(first).returncode, ran(first).stdout) == (0, "")
    assert (ran(second).returncode, ran(second).stdout) == (0, "one\n")


def test_a_page_written_in_jupyter_differs_where_it_was_edited(tmp_path):
    for file in ("2_multigpu.py", "jupytext.toml"):
        shutil.copy(ROOT / "docs" / "pages" / file, tmp_path)
    page, paired = tmp_path / "2_multigpu.py", tmp_path / "2_multigpu.ipynb"
    before = page.read_text()
    sync = [sys.executable, "-m", "jupytext", "--sync"]
    subprocess.run([*sync, page], check=True, timeout=120)
    assert page.read_text() == before
    cells = json.loads(paired.read_text())
    prose = [cell for cell in cells["cells"] if cell["cell_type"] == "markdown"]
    prose[1]["source"][-1] += "\nA sentence."
    prose[1]["metadata"] = {"tags": ["mine"]}  # Jupyter adds such things
    cells["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    paired.write_text(json.dumps(cells))
    newer = page.stat().st_mtime + 5
    os.utime(paired, (newer, newer))
    subprocess.run([*sync, paired], check=True, timeout=120)
    after = page.read_text()
    assert after.replace("# A sentence.\n", "", 1) == before

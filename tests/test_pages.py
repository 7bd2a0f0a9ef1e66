"""The pages' machinery, each mistake made on purpose in a small site that sphinx builds with -W."""

import re
import uuid

import pytest

from tests.sites import Site, diff_of, fails, page_of, run_of, warnings

psutil = pytest.importorskip("psutil", reason="no psutil: make docs installs it")
pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


# Diffs ------------------------------------------------------------------------------------------


def test_an_edit_shown_nowhere(site):
    edit = site.lesson.edits[0]
    site.edit(site.page, diff_of(edit), "")
    output = fails(site, f"no page shows multigpu {edit.name}", edit.lines[0].text.strip())
    assert len(warnings(output)) == 1


def test_an_edit_shown_twice(site):
    edit = site.lesson.edits[1]
    site.write("docs/pages/again.rst", f"{edit.title}\n{'=' * 60}\n\n{diff_of(edit)}")
    output = fails(
        site, f"multigpu {edit.name} is shown more than once: on pages/2_multigpu and on"
    )
    assert len(warnings(output)) == 1


def test_an_edit_on_the_wrong_page(site):
    edit = site.lesson.edits[1]
    site.edit(site.page, diff_of(edit), "")
    site.write("docs/pages/other.rst", f"{edit.title}\n{'=' * 60}\n\n{diff_of(edit)}")
    output = fails(site, f"multigpu {edit.name} is shown on pages/other, not on 2_multigpu")
    assert len(warnings(output)) == 1


def test_an_edit_without_prose(site):
    edit = site.lesson.edits[2]
    site.edit(site.page, diff_of(edit), diff_of(edit, prose=""))
    output = fails(site, f"multigpu {edit.name} has no prose: explain it below", site.page)
    assert len(warnings(output)) == 1


def test_an_edit_under_another_title(site):
    edit = site.lesson.edits[3]
    site.edit(site.page, edit.title, "What we do here")
    output = fails(
        site,
        f"multigpu {edit.name} stands under 'What we do here', but its title is {edit.title!r}",
    )
    assert len(warnings(output)) == 1


def test_an_edit_or_a_lesson_that_does_not_exist(site):
    site.add(site.page, "\n.. lesson-diff:: multigpu\n   :edit: nope\n\n   So.\n")
    site.add(site.page, "\n.. lesson-script:: multigqu\n")
    fails(
        site, "no edit of multigpu is called 'nope'; there are: start-the-processes,",
        "no lesson is called 'multigqu'; there are: single_gpu, multigpu",
    )  # fmt: skip


def test_prose_confirmed_for_other_lines_and_confirming_it(site):
    edit = site.lesson.edits[3]
    line = site.line_of(edit)
    site.edit("multigpu.py", line, f"{line}  # changed")
    what = f"multigpu {edit.name}"
    message = f"the prose of {what} was confirmed for {edit.fingerprint}, but its lines are "
    output = fails(site, message, f"python -m tools.pages confirm {what}")
    assert len(warnings(output)) == 1
    now = re.search("its lines are ([0-9a-f]{12}) now", output)[1]

    before, others = site.read(site.page), files(site)
    status, output = site.python("-m", "tools.pages", "confirm")
    assert (status, output) == (0, f"{what}: {now}\n")
    assert site.read(site.page) == before.replace(edit.fingerprint, now)  # and nothing else
    assert files(site) == others
    assert site.build()[0] == 0
    assert site.python("-m", "tools.pages", "confirm") == (
        0, "nothing has changed since it was confirmed\n",
    )  # fmt: skip
    status, output = site.python("-m", "tools.pages", "confirm", "multigpu", "nope")
    assert status == 2 and "no edit of multigpu is called 'nope'" in output


def files(site):
    """Every file but the page, with its content."""
    return {
        path: path.read_bytes()
        for path in site.root.rglob("*")
        if path.is_file() and "_build" not in path.parts and path != site.root / site.page
    }


def test_prose_that_nobody_confirmed(site):
    edit = site.lesson.edits[0]
    site.edit(site.page, f"   :confirmed: {edit.fingerprint}\n", "")
    fails(site, f"the prose of multigpu {edit.name} was confirmed for nothing")
    status, output = site.python("-m", "tools.pages", "confirm", "multigpu", edit.name)
    assert (status, output) == (0, f"multigpu {edit.name}: {edit.fingerprint}\n")
    assert site.read(site.page) == page_of(site.lesson)


# Commands ---------------------------------------------------------------------------------------

WRONG = {
    "a wrong flag": (
        run_of("python -m tools.series lint --nope"),
        ["exit status [2], but [0] was expected", "unrecognized arguments: --nope"],
    ),
    "a script that is not there": (
        run_of("python multigqu.py 50 10"),
        ["exit status [2], but [0] was expected", "can't open file 'multigqu.py'"],
    ),
    "output without the pattern": (
        run_of("echo the loss is 0.5", expect=r"loss is 0\.028"),
        [r"nothing in the output matches 'loss is 0\\.028'", "the loss is 0.5"],
    ),
    "no pattern": (
        "\n.. run::\n\n   echo\n",
        ["run needs shell lines and :expect:, a pattern of their output"],
    ),
    "success where failure was promised": (
        run_of("echo fine", status=3),
        ["exit status [0], but [3] was expected", "fine"],
    ),
    "failure of a line that is not the last": (
        run_of("echo fine; false", "echo later", status=0),
        ["exit status [1], but [0, 0] was expected"],
    ),
    "failure, as promised, but too early": (
        run_of("false", "echo later", status=1),
        ["exit status [1], but [0, 1] was expected"],
    ),
    "a shell block that nobody ran": (
        "\n.. code-block:: bash\n\n   python multigpu.py 50 10\n",
        ["a shell block that nobody ran: use the directive run, or not-run: python multigpu.py 50"],
    ),
    "the same in a literal block of another name": (
        "\n.. code-block:: console\n\n   $ make it so\n",
        ["a shell block that nobody ran: use the directive run, or not-run: $ make it so"],
    ),
    "the same in a block of no language": (
        "\n::\n\n   First\n   NCCL_P2P_DISABLE=1 torchrun x.py\n",
        ["a shell block that nobody ran: use the directive run, or not-run: First"],
    ),
    "an option that cannot be read": (
        run_of("echo fine", show="5"),
        ["not enough values to unpack"],
    ),
    "a pattern that is none": (
        run_of("echo fine", expect="fine("),
        ["no regular expression: missing ), unterminated subpattern"],
    ),
    "a command in single backticks": (
        "\n.. default-role:: code\n\nStart `torchrun --nope x`.\n",
        ["``torchrun --nope x`` is no part of a command that a page runs"],
    ),
    "more that is not run than the ceiling": (
        "\n.. not-run:: it needs a cluster\n\n   srun multigpu.py\n" * 2,
        ["2 blocks are marked not-run: no more than 1 may be"],
    ),
    "a command in the text that no page runs": (
        "\nStart ``torchrun --nope x`` or ``NPROC=4 python multigpu.py 50 11``.\n",
        [
            "``torchrun --nope x`` is no part of a command that a page runs",
            "``NPROC=4 python multigpu.py 50 11`` is no part of a command that a page runs",
        ],
    ),
    "a part of a command that ends within a word": (
        "\nStart ``python multigpu.py 5``.\n",
        ["``python multigpu.py 5`` is no part of a command that a page runs"],
    ),
}


@pytest.mark.parametrize("text, messages", WRONG.values(), ids=WRONG)
def test_a_wrong_command(site, text, messages):
    site.write("docs/pages/commands.rst", f"Commands\n========\n\nSome.\n{text}")
    output = fails(site, *messages, "commands")
    # Each names itself, and nothing else is wrong.
    wanted = sum(" is no part of" in message for message in messages) or 1
    assert len(warnings(output)) == wanted


def test_what_was_wrong_stays_wrong_until_it_is_mended(site, tmp_path):
    """The cache keeps no failure."""
    flag = tmp_path / "flag"
    site.write("docs/pages/flag.rst", "Flag\n====\n\n" + run_of(f"ls {flag}", expect="flag"))
    for _ in range(2):
        output = fails(site, "exit status [2], but [0] was expected", options=["-E"])
        assert len(warnings(output)) == 1
    flag.touch()
    status, output = site.build("dummy", "-E")
    assert status == 0, output


def test_a_command_that_hangs_is_killed_with_all_it_started(site):
    token = uuid.uuid4().hex
    child = f"exec -a {token} sleep 3000"
    line = f"(trap '' TERM; setsid bash -c '{child}') & bash -c '{child}'"
    site.write("docs/pages/hangs.rst", "Hang\n====\n\n" + run_of(line, timeout=1))
    output = fails(site, "still running after 1 s: ", "hangs.rst")
    assert len(warnings(output)) == 1
    left = [p for p in psutil.process_iter(["cmdline"]) if token in str(p.info["cmdline"])]
    for process in left:
        process.kill()
    assert not left

"""The pages' machinery: make each mistake in a small site that sphinx builds with -W."""

import re

import pytest

from tests.sites import Site, diff_of, fails, run_of, warnings
from tools.series import stages

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path / "site")


def test_every_mistake_about_an_edit_is_told(site):
    nowhere, twice, elsewhere, bare, retitled, not_run, unconfirmed = site.lesson.edits
    for edit in (nowhere, elsewhere):
        site.edit(site.page, diff_of(edit), "")
    for name, edit in (("again", twice), ("other", elsewhere)):
        site.write(f"docs/pages/{name}.rst", f"{edit.title}\n{'=' * 60}\n\n{diff_of(edit)}")
    site.edit(site.page, diff_of(bare), diff_of(bare, prose=""))
    site.edit(site.page, retitled.title, "What we do here")
    site.edit(site.page, f"   :confirmed: {stages.after(unconfirmed).fingerprint}\n", "")
    stage = stages.after(not_run).name
    site.edit(site.page, f"   echo {stage}\n", "")
    site.add(site.page, "\n.. lesson-diff:: multigpu\n   :edit: nope\n\n   So.\n")
    site.add(site.page, "\n.. lesson-script:: multigqu\n")
    messages = [
        f"no page shows multigpu {nowhere.name} (multigpu.py, {nowhere.lines[0].scope}: ",
        f"multigpu {twice.name} is shown more than once: on pages/2_multigpu and on pages/again",
        f"multigpu {elsewhere.name} is shown on pages/other, not on 2_multigpu",
        f"multigpu {bare.name} has no prose: explain it below",
        f"multigpu {retitled.name} is under 'What we do here', but its title is ",
        f"the prose of multigpu {unconfirmed.name} was confirmed for nothing",
        f"pages/2_multigpu shows {stage}, and runs it nowhere",
        "no edit of multigpu is called 'nope'; there are: start-the-processes,",
        "no lesson is called 'multigqu'; there are: single_gpu, multigpu",
    ]
    assert site.record()[0] == 0
    assert len(warnings(fails(site, *messages))) == len(messages)


def test_prose_confirmed_for_other_lines_and_confirming_it(site):
    edit = site.lesson.edits[3]
    line = site.line_of(edit)
    site.edit("multigpu.py", line, f"{line}  # changed")
    what = f"multigpu {edit.name}"
    confirmed = stages.after(edit).fingerprint
    assert site.record()[0] == 0
    message = f"the prose of {what} was confirmed for {confirmed}, but its lines are "
    output = fails(site, message, f"python -m tools.pages confirm {what}")
    assert len(warnings(output)) == 1
    now = re.search("its lines are ([0-9a-f]{12}) now", output)[1]

    before = site.read(site.page)
    assert site.python("-m", "tools.pages", "confirm") == (0, f"{what}: {now}\n")
    assert site.read(site.page) == before.replace(confirmed, now)  # and nothing else
    assert site.build()[0] == 0
    site.edit(site.page, f"   :confirmed: {now}\n", "")
    assert site.python("-m", "tools.pages", "confirm", *what.split())[0] == 0
    assert site.read(site.page) == before.replace(confirmed, now)
    status, output = site.python("-m", "tools.pages", "confirm", "multigpu", "nope")
    assert status == 2 and "no edit of multigpu is called 'nope'" in output


# Commands ---------------------------------------------------------------------------------------

UNKNOWN = "is no part of a command that a page runs"
UNRUN = "a shell block that nobody ran: use the directive run, or not-run: "
TO_RECORD = {
    run_of("python -m tools.series lint --nope"): "unrecognized arguments: --nope",
    run_of("echo the loss is 0.5", expect=r"loss is 0\.028"): (
        r"nothing in the output matches 'loss is 0\\.028'"
    ),
    run_of("echo fine", mark="foul"): "no line shown matches 'foul'",
    run_of("echo fair", status=3): "exit status [0], but [3] was expected",
    run_of("echo fine; false", "echo later"): "exit status [1], but [0, 0] was expected",
    run_of("false | cat", "echo later", status=1): "exit status [1], but [0, 1] was expected",
    run_of("echo begun; sleep 3000", timeout=1): (
        "still running after 1 s: echo begun; sleep 3000\nbegun"
    ),
    run_of("echo open", expect="open("): "regular expression: missing ), unterminated",
}
TO_BUILD = {
    "\n.. run::\n\n   echo\n": "run needs shell lines and :expect:, a pattern of their output",
    run_of("echo unknown"): (
        "the recording of this command is missing: python -m tools.pages record --stale"
    ),
    "\n.. code-block:: bash\n\n   python multigpu.py 50 10\n": f"{UNRUN}python multigpu.py 50 10",
    "\n.. code-block:: console\n\n   $ make it so\n": f"{UNRUN}$ make it so",
    "\n::\n\n   First\n   NCCL_P2P_DISABLE=1 torchrun x.py\n": f"{UNRUN}First",
    "\nStart ``NPROC=4 python x.py 11``.\n": f"``NPROC=4 python x.py 11`` {UNKNOWN}",
    "\nStart ``python multigpu.py 5``.\n": f"``python multigpu.py 5`` {UNKNOWN}",
    "\n.. not-run:: it needs a cluster\n\n   srun multigpu.py\n" * 2: (
        "2 blocks are marked not-run: no more than 1 may be"
    ),
}  # fmt: skip


def test_every_wrong_command_is_told(site):
    assert site.record()[0] == 0
    title = "Commands\n========\n\nSome.\n"
    site.write("docs/pages/commands.rst", title + "".join(TO_BUILD))
    assert len(warnings(fails(site, *TO_BUILD.values()))) == len(TO_BUILD)
    site.write("docs/pages/commands.rst", title + "".join(TO_RECORD))
    status, output = site.record()
    assert status == 1 and output.count("\nWRONG, commands: ") == len(TO_RECORD), output
    for message in TO_RECORD.values():
        assert message in output
    assert not (site.docs / "recorded" / "commands.toml").exists()


def test_what_commands_show(site):
    pieces = "'with a quoted   piece of its own'"
    line = f"echo {pieces} {' '.join(['and-another-word'] * 6)} end"
    lines = line, "date +%N", "echo kept for the code"
    runs = [run_of(*lines, expect="kept for", lines=shown) for shown in ("1 2", "2 2")]
    runs.append(run_of("seq 30", "echo {multigpu}", expect="^17$", show="2 1"))
    runs.append(run_of("echo broken; exit 3", expect="broken", status=3))
    runs.append("\n.. not-run:: it needs a cluster\n\n   srun x.py\n\nSo ``srun x.py``.\n")
    site.write("docs/pages/long.rst", "Long\n====\n\nProse.\n" + "".join(runs))
    assert site.record()[0] == 0
    status, output = site.build("html")
    assert status == 0, output
    shown = re.sub("<[^>]+>", "", site.built("html/pages/long.html")).replace("&#39;", "'")
    # Blocks of the same lines show parts of one run.
    assert "kept for the code" not in shown and shown.count(pieces) == 1
    moments = re.findall(r"\$ date \+%N\s+(\d+)", shown)
    assert len(moments) == 2 and len(set(moments)) == 1
    # A long line is continued.
    commands = re.search(r"(?m)^\$ ((?:.*\\\n)*.*)", shown)[1]
    assert commands.count("\n") == 1 and re.sub(r" \\\n +", " ", commands) == line
    assert re.search(r"\$ seq 30\s+1\s+2\s+⋮ 27 more lines\s+30\n", shown)
    assert f"$ echo {site.lesson.run}" in shown and "exit status 3" in shown
    assert "not run here: it needs a cluster" in shown
    assert shown.count("The commands of this page were recorded on 20") == 1

"""python -m workshop, as a learner types it, mistakes included."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import ROOT
from workshop.exercises import exercises

FIRST = "multigpu/start-the-processes"


@pytest.fixture
def workshop(tmp_path):
    def run(*words, folder="mine", **env):
        return subprocess.run(
            [sys.executable, "-m", "workshop", "--dir", str(tmp_path / folder), *words],
            cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    run.folder = tmp_path / "mine"
    run.script = lambda name: run.folder / name / exercises()[name].file
    return run


def test_from_the_start_to_the_solution(workshop):
    begun = workshop("start")
    assert begun.returncode == 0 and FIRST in begun.stdout
    script = workshop.script(FIRST)
    assert str(script) in begun.stdout
    assert script.read_text() == exercises()[FIRST].start

    failed = workshop("check")
    assert failed.returncode == 1
    assert "✗ As many processes train as were asked for." in failed.stdout
    assert "Seen: 1 of 2 processes" in failed.stdout and "Hint:" in failed.stdout
    assert "Page: 2_multigpu.html, “One process per device”" in failed.stdout
    assert "Traceback" not in failed.stderr
    assert workshop("check", "--again").stdout == failed.stdout

    hints = [workshop("hint").stdout for _ in range(3)]  # the first came with the check
    assert [hint.split("\n")[0][-6:] for hint in hints] == ["2 of 3", "3 of 3", "3 of 3"]
    assert "torch.multiprocessing" in hints[0] and "mp.spawn(…" in hints[1]

    assert "ask for it once more" in workshop("solution").stdout
    assert "+    mp.spawn(worker, args=(world_size, args)" in workshop("solution").stdout

    script.write_text(exercises()[FIRST].solution)
    assert "+def worker(rank, world_size, args):" in workshop("diff").stdout
    passed = workshop("check")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "Right. next: python -m workshop start multigpu/construct-the-process" in passed.stdout
    assert f"✓  1  {FIRST}" in workshop("list").stdout
    assert f"1 of {len(exercises())} solved" in workshop("list").stdout
    assert "multigpu/construct-the-process-group" in workshop("start").stdout  # goes on

    room = workshop("report", str(workshop.folder), str(workshop.folder / "nobody"))
    assert room.returncode == 0 and "nobody: nothing done yet" in room.stdout
    assert any(line.split()[1:2] == [f"1/{len(exercises())}"] for line in room.stdout.splitlines())


def test_nothing_of_the_learners_is_overwritten(workshop):
    workshop("start", "save-once")
    script = workshop.script("multigpu/save-once")
    script.write_text("# mine\n")
    again = workshop("start", "save-once")
    assert "It is there already" in again.stdout and script.read_text() == "# mine\n"
    for number in (1, 2):
        assert workshop("reset").returncode == 0
        assert (script.parent / f"multigpu.{number}.txt").read_text() == "# mine\n"
        assert script.read_text() == exercises()["multigpu/save-once"].start
        script.write_text("# mine\n")
    assert "1 of" not in workshop("list").stdout


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("def broken(:\n", "SyntaxError"),
        ("import no_such_thing\n", "No module named 'no_such_thing'"),
        ("\0", "null bytes"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", "status -9"),
        ("import sys\nsys.exit(3)\n", "status 3"),
    ],
)
def test_a_broken_script_never_breaks_the_tool(workshop, text, seen):
    workshop("start", "save-once")
    workshop.script("multigpu/save-once").write_text(text)
    checked = workshop("check")
    assert checked.returncode == 1 and not checked.stderr, checked.stderr
    assert seen in " ".join(checked.stdout.split()), checked.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check"], "no exercise has been started"),
        (["start", "save-twice"], "no exercise is called 'save-twice'"),
        (["hint", "save-once"], "python -m workshop start multigpu/save-once"),
        (["report", "nowhere"], "no folder of a learner"),
    ],
)
def test_a_mistake_is_one_line(workshop, words, told):
    ran = workshop(*words)
    assert ran.returncode == 2 and told in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_folder_that_cannot_be_written(workshop, tmp_path):
    (tmp_path / "mine").write_text("a file")
    ran = workshop("start")
    assert ran.returncode == 2 and "name another folder" in ran.stderr


def test_progress_survives_a_damaged_line(workshop):
    workshop("start", "save-once")
    with open(workshop.folder / "progress.jsonl", "a") as log:
        log.write('{"t": 1, "exerc')
    assert "multigpu/save-once" in workshop("hint").stdout


def test_plain_where_there_are_no_colours_and_no_such_letters(workshop):
    workshop("start", "save-once")
    workshop.script("multigpu/save-once").write_text("raise SystemExit(1)\n")
    plain = workshop("check", PYTHONIOENCODING="ascii")
    assert plain.returncode == 1 and not plain.stderr
    assert "\x1b" not in plain.stdout and "  x " in plain.stdout
    assert "\x1b" not in workshop("list").stdout


def test_colours_on_a_terminal_and_watch(workshop):
    """`watch` checks at once and at every save, and Ctrl-C ends it without a traceback."""
    workshop("start", "save-once")
    script = workshop.script("multigpu/save-once")
    script.write_text("raise SystemExit(1)\n")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "workshop", "--dir", str(workshop.folder), "watch"], cwd=ROOT,
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": ""},
    )  # fmt: skip
    os.close(theirs)
    try:
        first = _until(ours, "Waiting for the next save")
        assert "\x1b[31m" in first and "status 1" in first
        script.write_text("raise SystemExit(2)\n")
        assert "status 2" in _until(ours, "Waiting for the next save")
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 130
        with contextlib.suppress(OSError):
            assert b"Traceback" not in os.read(ours, 10_000)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        os.close(ours)


def _until(terminal, text, limit=60):
    seen, end = "", time.monotonic() + limit
    while text not in seen:
        assert time.monotonic() < end, seen
        seen += os.read(terminal, 10_000).decode(errors="replace")
    return seen


def test_the_room_says_who_is_stuck(workshop, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    now = time.time()
    events = [{"t": now - 900, "exercise": FIRST, "event": "start"}] + [
        {"t": now - 60 * n, "exercise": FIRST, "event": "check", "failed": "joined"}
        for n in (13, 12, 11)
    ]
    (mine / "progress.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    said = workshop("report", str(mine)).stdout
    assert "stuck at joined" in said and "nothing for 11 min" in said

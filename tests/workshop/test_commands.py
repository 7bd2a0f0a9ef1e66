"""python -m workshop as a learner types it, including their mistakes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import ROOT
from tools.processes import Process, environment
from workshop import show
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


def wait_until(true, process):
    end = time.monotonic() + 100
    while not true():
        assert time.monotonic() < end, process.tail
        time.sleep(0.1)


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

    hints = [workshop("hint").stdout for _ in range(3)]  # the check has printed the first
    assert [hint.split("\n")[0][-6:] for hint in hints] == ["2 of 3", "3 of 3", "3 of 3"]
    assert "torch.multiprocessing" in hints[0] and "mp.spawn(…" in hints[1]

    assert "ask for it once more" in workshop("solution").stdout
    assert "+    mp.spawn(worker, args=(world_size, args)" in workshop("solution").stdout

    script.write_text(exercises()[FIRST].solution)
    passed = workshop("check")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "Right. next: python -m workshop start multigpu/construct-the-process" in passed.stdout
    assert f"✓  1  {FIRST}" in workshop("list").stdout
    assert f"1 of {len(exercises())} solved" in workshop("list").stdout
    assert "multigpu/construct-the-process-group" in workshop("start").stdout  # the next one

    room = workshop("report", str(workshop.folder), str(workshop.folder / "nobody"))
    assert room.returncode == 0 and "nobody: nothing done yet" in room.stdout
    rows = [line.split() for line in room.stdout.splitlines()]
    assert any(row[1:3] == ["–", f"1/{len(exercises())}"] for row in rows)  # `ready` has not run


def test_nothing_of_the_learners_is_overwritten(workshop):
    workshop("start", "save-once")
    script = workshop.script("multigpu/save-once")
    script.write_text("# mine\n")
    assert "It is there already" in workshop("start", "save-once").stdout
    assert script.read_text() == "# mine\n"
    for number in (1, 2):
        assert workshop("reset").returncode == 0
        assert (script.parent / f"multigpu.{number}.txt").read_text() == "# mine\n"
        assert script.read_text() == exercises()["multigpu/save-once"].start
        script.write_text("# mine\n")


def test_watch_checks_at_once_and_at_every_save_until_ctrl_c(workshop):
    workshop("start", "save-once")
    script = workshop.script("multigpu/save-once")
    script.write_text("raise SystemExit(1)\n")
    words = [sys.executable, "-m", "workshop", "--dir", workshop.folder, "watch"]
    with Process(words, cwd=ROOT) as process:
        process.wait_for("status 1")
        seen = process.wait_for("Waiting for the next save")
        script.write_text("raise SystemExit(2)\n")
        process.wait_for("status 2", seen)
        process.process.send_signal(signal.SIGINT)
        assert process.wait() == 130 and "Traceback" not in process.out


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
        (["report", "nowhere"], "no learner's folder"),
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


ODD = [
    '{"t": 1, "exerc', "[]", "null", '{"t": "soon", "exercise": "multigpu", "event": "start"}',
    '{"t": 1, "exercise": 5, "event": "solved"}', '{"t": 1, "exercise": [], "event": "start"}',
    '{"t": 1, "exercise": "multigpu/save-once", "event": "check", "failed": ["x"]}',
    '{"t": 1, "exercise": "multigpu", "event": "check", "failed": "joined", "reached": "x"}',
    '{"t": 1, "exercise": "", "event": "ready", "wrong": [{}]}', "\0\0\0", "[" * 9999,
]  # fmt: skip


def test_progress_survives_damaged_lines(workshop):
    workshop("start", "save-once")
    log = workshop.folder / "progress.jsonl"
    log.write_text("\n".join([log.read_text(), *ODD, '{"t": 1, "exe']))
    for words in (["hint"], ["list"], ["start", "distribute-the-data"], ["solution"]):
        ran = workshop(*words)
        assert ran.returncode in (0, 1) and not ran.stderr, ran.stderr
    assert "multigpu/distribute-the-data" in workshop("hint").stdout  # was logged after the damage
    assert not workshop("report", str(workshop.folder)).stderr


def test_a_script_that_writes_among_the_notes(workshop):
    workshop("start", "save-once")
    script = workshop.script("multigpu/save-once")
    script.write_text(
        "import os\n"
        "notes = os.environ['DOCTOR_FACTS']\n"
        "for name in ('mine.jsonl', f'{os.getpid()}.jsonl', '7.stack'):\n"
        "    with open(f'{notes}/{name}', 'a') as file:\n"
        '        file.write(\'mine\\n[]\\n{"kind": "batch"}\\n\')\n'
        "os.mkdir(f'{notes}/8.jsonl')\n"
    )
    checked = workshop("check")
    assert checked.returncode == 1 and not checked.stderr, checked.stderr
    assert "Seen: 1 of 2 processes" in checked.stdout


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGQUIT, signal.SIGTERM])
def test_a_workshop_that_is_killed_leaves_nothing(workshop, sign, tmp_path):
    workshop("start", "save-once")
    workshop.script("multigpu/save-once").write_text(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "time.sleep(300)\n"
    )
    words = [sys.executable, "-m", "workshop", "--dir", workshop.folder, "check"]
    with Process(words, cwd=ROOT, env=environment(TMPDIR=str(tmp_path))) as process:
        wait_until(lambda: len(process.alive()) >= 4, process)  # the guardian, too
        assert [*tmp_path.glob("workshop-*")]
        process.process.send_signal(sign)
        wait_until(lambda: not process.alive(), process)
    assert not [*tmp_path.glob("workshop-*")]


def test_an_exercise_needs_no_other_exercises_answer(workshop):
    workshop("start", FIRST)
    text = exercises()[FIRST].solution
    end = text.index("    dist.barrier()"), text.index("\n\nif __name__")
    workshop.script(FIRST).write_text(text[: end[0]] + text[end[1] :])
    passed = workshop("check")
    assert passed.returncode == 0, passed.stdout


def test_a_hint_is_about_what_fails_now_and_one_cause_is_told_once(workshop):
    workshop("start", FIRST)
    text = exercises()[FIRST].solution
    workshop.script(FIRST).write_text(text.replace("DistributedSampler(dataset)", (
        "torch.utils.data.RandomSampler(dataset, generator=torch.Generator())"
    )).replace("sampler.set_epoch(", "sampler.generator.manual_seed("))  # fmt: skip
    checked = workshop("check").stdout
    assert checked.count("✗") == 1 and "one rank sees each sample" in checked
    assert "Replace RandomSampler by" in workshop("hint").stdout
    assert "DistributedSampler(…" in workshop("hint").stdout


def test_plain_where_there_are_no_colours_and_no_such_letters(workshop):
    workshop("start", "save-once")
    workshop.script("multigpu/save-once").write_text("raise SystemExit(1)\n")
    plain = workshop("check", PYTHONIOENCODING="ascii")
    assert plain.returncode == 1 and not plain.stderr
    assert "\x1b" not in plain.stdout and "  ? " in plain.stdout
    assert "\x1b" not in workshop("list").stdout


def test_colours_on_a_terminal_unless_told(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for terminal, no_color, shown in [
        ("xterm", "", "\x1b[31mwrong\x1b[0m\n"), ("xterm", "1", "wrong\n"), ("dumb", "", "wrong\n"),
    ]:  # fmt: skip
        monkeypatch.setenv("TERM", terminal)
        monkeypatch.setenv("NO_COLOR", no_color)
        show.say("wrong", "red")
        assert capsys.readouterr().out == shown


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

"""python -m workshop as a learner types it, including their mistakes."""

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.processes import ROOT
from tests.workshop.cases import CASES
from tests.workshop.recorded import read
from tools.processes import Process, environment
from workshop import __main__ as commands
from workshop import show
from workshop.by_epoch import Run
from workshop.exercises import exercises
from workshop.folder import Folder

FIRST = "multigpu/one-line"
NUMBER = len(exercises())


@pytest.fixture
def workshop(tmp_path):
    """The command in a separate process: `(status, stdout)`."""

    def run(*words, **env):
        ran = subprocess.run(
            [sys.executable, "-m", "workshop", "--dir", tmp_path / "mine", *words],
            cwd=ROOT, env=environment(**env), capture_output=True, text=True, timeout=240,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert "Traceback" not in ran.stderr and len(ran.stderr.strip().splitlines()) <= 1
        return ran.returncode, ran.stdout + ran.stderr

    run.folder = tmp_path / "mine"
    run.script = lambda name: run.folder / name / exercises()[name].file
    return run


@pytest.fixture
def replayed(tmp_path, monkeypatch, capsys):
    """The command in this process, whose checks replay the recorded facts of a case's script."""

    def observe(files, acts, tell):
        text = files[0].read_text()
        case = next(case for case in CASES.values() if case.text == text)
        yield Run(read(case)[acts[0].asked["processes"] == 3])

    def run(*words):
        status = commands.main(["--dir", str(tmp_path / "mine"), *words])
        return status, capsys.readouterr().out

    monkeypatch.setattr(commands, "observe", observe)
    run.script = lambda name: tmp_path / "mine" / name / exercises()[name].file
    return run


def wait_until(true, process):
    end = time.monotonic() + 100
    while not true():
        assert time.monotonic() < end, process.tail
        time.sleep(0.1)


def test_what_is_solved_is_listed_and_the_next_exercise_begins(replayed):
    replayed("start")
    assert replayed("check")[0] == 1
    assert "hint 2 of 3" in replayed("hint")[1]  # the check has printed the first
    replayed.script(FIRST).write_text(exercises()[FIRST].solution)
    assert replayed("check")[0] == 0
    listed = replayed("list")[1]
    assert f"✓  1  {FIRST}" in listed and f"1 of {NUMBER} solved" in listed
    assert "multigpu/start-the-processes" in replayed("start")[1]  # the next one


@pytest.mark.parametrize("name", exercises())
def test_an_exercise_begins_in_an_empty_folder(name, tmp_path):
    exercise, folder = exercises()[name], Folder(tmp_path / "mine")
    script, fresh = folder.start(exercise)
    assert fresh and script.read_text() == exercise.start
    beside = {str(file.relative_to(folder.path / name)) for file in folder.files(exercise)}
    assert beside == {exercise.file, *exercise.others}


def test_a_path_is_walked_by_commands(replayed):
    status, said = replayed("start", "multigpu")
    assert status == 0 and "7 Ending the process group" in said
    replayed.script("multigpu").write_text(CASES["multigpu@2"].text)
    assert replayed("check")[0] == 1
    status, said = replayed("hint")
    assert "hint 2 of 3" in said and "DistributedSampler" in said
    assert replayed("solution")[0] == 1
    status, said = replayed("solution")
    assert "what multigpu@3 has where yours differs" in said
    assert "+    sampler = DistributedSampler(dataset)" in said and "DDP(" not in said


def test_a_syntax_error_comes_first(workshop):
    workshop("start", "multigpu")
    text = CASES["multigpu@2"].text
    workshop.script("multigpu").write_text(text.replace("def main(args):", "def main(args)"))
    status, said = workshop("check")
    assert status == 1 and "ended with an error. Fix that first:" in said and "SyntaxError" in said


def test_a_hint_is_about_what_fails_now_and_one_cause_is_told_once(replayed):
    replayed("start", FIRST)
    case = CASES["wrong: a sampler that draws the same for each rank"]
    replayed.script(FIRST).write_text(case.text)
    checked = replayed("check")[1]
    assert checked.count("✗") == 1 and "seen once per epoch" in checked
    assert "Replace RandomSampler by" in replayed("hint")[1]
    assert "DistributedSampler(…" in replayed("hint")[1]


def test_a_hint_about_no_step_is_that_of_the_step_to_make():
    path = exercises()["multinode"]
    (crashed,) = [one for one in path.checks if one.name == "ends-well"]
    assert [path.fitting(crashed, reached) for reached in (0, 1, 2)] == [*path.steps, path.steps[1]]


def test_nothing_of_the_learners_is_overwritten(replayed):
    replayed("start", "save-once")
    script = replayed.script("multigpu/save-once")
    script.write_text("# mine\n")
    assert "It is there already" in replayed("start", "save-once")[1]
    assert script.read_text() == "# mine\n"
    for number in (1, 2):
        assert not replayed("reset")[0]
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


def test_a_killed_script_never_breaks_the_tool(workshop):
    workshop("start", "save-once")
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    workshop.script("multigpu/save-once").write_text(text)
    status, said = workshop("check")
    assert status == 1 and "Signal 9 (SIGKILL)" in " ".join(said.split()), said


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
    status, said = workshop(*words)
    assert status == 2 and told in said.strip().splitlines()[-1]


def test_a_folder_that_cannot_be_written(workshop):
    workshop.folder.write_text("a file")
    status, said = workshop("start")
    assert status == 2 and "name another folder" in said


def test_a_hunt_shows_its_symptom_and_after_a_hint_the_line(replayed):
    told = "ranks call every collective"
    assert told not in replayed("start", "waiting-for-rank-1")[1]
    said = replayed("check")[1]
    assert "✗ It hangs after the first epoch" in said and told not in said
    hint = replayed("hint")[1]
    assert "hint 1 of 3" in hint and told in hint and "(multigpu.py:" in hint
    assert told in replayed("check")[1]


def test_a_crash_comes_first_then_what_is_broken_and_the_stage_stays(replayed):
    replayed("start", "multigpu")
    replayed.script("multigpu").write_text(CASES["multigpu@4"].text)
    assert "has reached multigpu@4" in replayed("check")[1]
    replayed.script("multigpu").write_text(CASES["wrong: device_ids on a CPU"].text)
    said = replayed("check")[1]
    assert "✓ 4 Constructing the DDP model" in said and "→ 5" in said
    assert "Your script ended with an error. Fix that first:" in said
    assert "Hint: On a CPU, DDP takes no device_ids" in said
    replayed.script("multigpu").write_text(CASES["wrong: DDP's mean, divided once more"].text)
    said = replayed("check")[1]
    assert "✗ 4 Constructing the DDP model" in said and "uses the mean of all ranks" in said
    assert "You had reached multigpu@4. This is broken now:" in said


def test_progress_survives_a_line_that_a_full_disk_cut(replayed, tmp_path):
    replayed("start", "save-once")
    log = tmp_path / "mine" / "progress.jsonl"
    log.write_text(log.read_text() + '\n{"t": 1, "exerc\n\0\0\0\n{"t": 1, "exe')
    for words in (["hint"], ["list"], ["start", "distribute-the-data"], ["solution"]):
        assert replayed(*words)[0] in (0, 1)
    assert "multigpu/distribute-the-data" in replayed("hint")[1]  # was logged after the damage
    assert replayed("report", str(tmp_path / "mine"))[0] == 0


def test_a_workshop_that_is_terminated_leaves_nothing(workshop, tmp_path):
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
        process.process.terminate()
        wait_until(lambda: not process.alive(), process)
    assert not [*tmp_path.glob("workshop-*")]


def test_plain_where_there_are_no_such_letters(workshop):
    workshop("start")
    status, said = workshop("list", PYTHONIOENCODING="ascii")
    assert status == 0 and "\x1b" not in said and f"?  1  {FIRST}" in said


def test_colours_on_a_terminal_unless_told(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for terminal, no_color, shown in [
        ("xterm", "", "\x1b[31mwrong\x1b[0m\n"), ("xterm", "1", "wrong\n"), ("dumb", "", "wrong\n"),
    ]:  # fmt: skip
        monkeypatch.setenv("TERM", terminal)
        monkeypatch.setenv("NO_COLOR", no_color)
        show.say("wrong", "red")
        assert capsys.readouterr().out == shown
    show.running()()
    assert "your script runs, 0 s" in capsys.readouterr().out


def test_the_room_says_who_is_stuck(replayed, tmp_path):
    now = time.time()
    events = [
        {"t": now - 9000, "exercise": "", "event": "ready", "wrong": []},
        {"t": now - 900, "exercise": FIRST, "event": "start"},
    ] + [
        {"t": now - 60 * n, "exercise": FIRST, "event": "check", "failed": "joined"}
        for n in (13, 12, 11)
    ]
    (tmp_path / "mine").mkdir()
    log = tmp_path / "mine" / "progress.jsonl"
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    said = replayed("report", str(tmp_path / "mine"))[1]
    assert "stuck at joined" in said and "nothing for 11 min" in said
    assert f"{tmp_path / 'mine'}  yes      0/{NUMBER}    4" in said  # `ready` counts no minutes

"""The command: whatever it is given, it says so in one line, and leaves nothing behind."""

import os
import re
import signal
import subprocess

import pytest

from ddp_doctor.descendants import Command
from defects.cases import CORRECT
from diagnosing import DOCTOR, LIMIT, diagnose, environment, python, run
from examples import BEGIN

ENV = environment()


def script(folder, text):
    (folder / "script.py").write_text(text)
    return "python", "script.py"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "required: COMMAND"),
        (["--", "no-such-command"], "cannot run 'no-such-command'"),
        (["--ignore", "no-such-rule", "--", "python"], "invalid choice: 'no-such-rule'"),
        (["--restart", "--nodes", "2", "--", "python"], "not allowed with"),
        (["--nodes", "2", "--", "python", "x.py"], "begins with torchrun"),
        (["explain", "every-epoch"], "no rule is called 'every-epoch': every-epoch-alike"),
        (["no-such-command", "--cpu", "2"], "cannot run 'no-such-command'"),
        (["--json", "no/such/folder", "--", "python"], "No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(words, says, tmp_path):
    ran = run([*DOCTOR, *words], tmp_path)
    assert ran.status == 2
    assert ran.out.count("\n") == 1 and says in ran.out, ran.out


def test_a_prompt_meets_an_empty_input(tmp_path):
    seen = diagnose(tmp_path, *script(tmp_path, "input('name? ')"))
    assert seen.ran.status == 1
    (crash,) = seen.found["crashed"]
    assert "EOFError" in crash["evidence"] and crash["where"] == "script.py:1"


def test_output_is_passed_on_byte_by_byte(tmp_path):
    words = script(tmp_path, "import os; os.write(1, bytes(range(256)))")
    done = subprocess.run([*DOCTOR, "--", *words], cwd=tmp_path, env=ENV, timeout=LIMIT,
                          capture_output=True)  # fmt: skip
    assert done.stdout == bytes(range(256))


def test_a_daemon_is_ended_and_named(tmp_path):
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\n"
    seen = diagnose(tmp_path, *script(tmp_path, text))
    assert "left-running" in seen.found


def test_a_script_may_have_any_name(tmp_path):
    (tmp_path / "train").write_text(BEGIN + "train(DataLoader(data, 8), model, optimizer)\n")
    seen = diagnose(tmp_path, "sh", "-c", "python train")
    assert seen.report["header"].startswith("1 rank, 10 optimizer steps"), seen.ran.tail
    assert not seen.severe


def test_a_killed_command_keeps_its_status(tmp_path):
    seen = diagnose(tmp_path, *script(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert seen.ran.status == 128 + signal.SIGKILL
    assert "SIGKILL" in seen.found["crashed"][0]["evidence"]


@pytest.mark.parametrize(
    "number, options",
    [
        (signal.SIGINT, ()),
        (signal.SIGINT, ("--restart",)),
        (signal.SIGTERM, ()),
        (signal.SIGKILL, ()),
    ],
)
def test_a_signal_ends_everything(tmp_path, number, options):
    text = "import time\nprint('begun', flush=True)\ntime.sleep(600)"
    words = [*DOCTOR, *options, "--", *script(tmp_path, text)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = ENV | {"TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    with Command(words, tmp_path, env, stdout=pipe, stderr=pipe, text=True) as command:
        assert command.process.stdout.readline() == "begun\n"
        command.process.send_signal(number)
        status = command.process.wait(LIMIT)
        assert status == (-number if number == signal.SIGKILL else 128 + number)
        command.process.stdout.read()  # ends with the guard, too
        report = command.process.stderr.read()
        assert ("script.py:3" in report) == (number == signal.SIGINT), report
        assert not command.alive()
    assert list(temporary.iterdir()) == []


def test_the_weights_are_those_of_a_run_without_it(tmp_path):
    ran = run(script(tmp_path, CORRECT), tmp_path)
    assert ran.status == 0, ran.tail
    for options in (), ("--cpu", "2"):
        place = tmp_path / f"with {len(options)} options"
        place.mkdir()
        seen = diagnose(place, "python", "../script.py", options=options)
        assert seen.ran.status == 0, seen.ran.tail
        assert os.listdir(place) == ["checkpoint.pt"]
        without = (tmp_path / "checkpoint.pt").read_bytes()
        assert (place / "checkpoint.pt").read_bytes() == without, options


LISTENER = """
facts = open(f"{os.environ['DOCTOR_FACTS']}/{os.getpid()}.jsonl").read()
print(facts.count('"kind": "backward"'), "of 400 backward passes")
"""


def test_most_passes_of_a_single_process_are_only_counted(tmp_path):
    """A line for each made a step of 0.3 ms longer by a sixth."""
    train = "for _ in range(40):\n    train(DataLoader(data, 8), model, optimizer)\n"
    seen = python(tmp_path, BEGIN + train + LISTENER)
    assert re.search(r"\b([89]|1[0-3]) of 400 backward passes", seen.ran.tail), seen.ran.tail
    assert seen.report["header"].startswith("1 rank, 400 optimizer steps"), seen.ran.tail

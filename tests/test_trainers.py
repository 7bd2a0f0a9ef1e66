"""Trainers that are compared take turns, whatever they have started."""

import itertools
import shutil
import sys
import time

import pytest

from tools.bench import trainers

# Ends in its third turn at the earliest.
COUNT = """import signal, sys, time
turns = []
signal.signal(signal.SIGCONT, lambda *_: turns.append(1))
while len(turns) < 2:
    with open(sys.argv[2], "a") as log:
        log.write(sys.argv[1])
    time.sleep(0.02)
print("val loss 1.5")
"""


@pytest.mark.skipif(not shutil.which("setsid"), reason="no setsid: Linux, util-linux")
def test_one_at_a_time(tmp_path, monkeypatch):
    script, log, turns, turn = tmp_path / "count.py", tmp_path / "log", [], trainers.Run.turn
    script.write_text(COUNT)
    monkeypatch.setattr(trainers.Run, "turn", lambda *args: turns.append(1) or turn(*args))
    # In a session of its own, as torchrun starts its workers.
    commands = {
        name: ("", f"sh -c 'setsid -w {sys.executable} {script} {name} {log}; exit'")
        for name in "ab"
    }
    start = time.perf_counter()
    runs = trainers.by_turns(commands, 1.6, 0.3)
    took = time.perf_counter() - start
    written = log.read_text()
    changes = sum(one != other for one, other in itertools.pairwise(written))
    # At most one letter of who is stopped comes late.
    assert set(written) == set("ab") and changes <= 2 * len(turns)
    for run in runs.values():
        assert run.loss == 1.5 and 0 < run.reached <= run.seconds
    assert sum(run.seconds for run in runs.values()) <= took  # the turns of others do not count


def test_a_command_that_is_not_there():
    with pytest.raises(SystemExit, match=r"^cannot start nonesuch --fast in .*: .*No such file"):
        trainers.by_turns({"a": ("", "nonesuch --fast")}, None, 1)

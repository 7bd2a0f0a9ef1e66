"""Trainers that are compared take turns, whatever they have started."""

import itertools
import shutil
import sys

import pytest

from tools.bench.trainers import by_turns

COUNT = """import sys, time
for number in range(40):
    with open(sys.argv[2], "a") as log:
        log.write(sys.argv[1])
    time.sleep(0.02)
print("val loss 1.5")
"""


@pytest.mark.skipif(not shutil.which("setsid"), reason="no setsid: Linux, util-linux")
def test_one_at_a_time(tmp_path):
    script, log, turn = tmp_path / "count.py", tmp_path / "log", 0.3
    script.write_text(COUNT)
    # In a session of its own, as torchrun starts its workers.
    commands = {
        name: ("", f"sh -c 'setsid -w {sys.executable} {script} {name} {log}; exit'")
        for name in "ab"
    }
    runs = by_turns(commands, 1.6, turn)
    written = log.read_text()
    assert sorted(written) == ["a"] * 40 + ["b"] * 40
    changes = sum(one != other for one, other in itertools.pairwise(written))
    turns = sum(run.seconds for run in runs.values()) / turn + 2
    assert 2 <= changes <= turns
    for run in runs.values():
        # Of its 0.8 s of sleep, what falls into the others' turns does not count.
        assert run.loss == 1.5 and 0.5 < run.reached <= run.seconds


def test_a_command_that_is_not_there():
    with pytest.raises(SystemExit, match=r"^cannot start nonesuch --fast in .*: .*No such file"):
        by_turns({"a": ("", "nonesuch --fast")}, None, 1)

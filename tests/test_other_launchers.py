"""Other launchers end all ranks when one fails, so the first to fail must name the cause."""

import subprocess
import sys
import time

import pytest

from tests import nodes
from tests.cluster.jobs import crash
from tests.processes import ROOT
from tools.processes import Process, environment, free_port


def start(script, *folders):
    """A process per folder, with torchrun's variables but without torchrun."""
    env = {"LOCAL_RANK": "0", "WORLD_SIZE": str(len(folders)), "MASTER_ADDR": "localhost"}
    env |= {"MASTER_PORT": str(free_port())}
    words = [sys.executable, script, "2", "1"]
    return [
        Process(words, folder, environment(**env, RANK=str(rank)), stderr=subprocess.PIPE)
        for rank, folder in enumerate(folders)
    ]


def test_the_one_that_knows_speaks_before_those_who_lost_it(tmp_path):
    """Rank 1 alone cannot read its checkpoint. As mpirun does, the first to end ends the other."""
    folders = [tmp_path / rank for rank in "01"]
    for folder in folders:
        folder.mkdir()
    (folders[1] / "multinode.pt").write_text("no checkpoint")
    running = start(ROOT / "multinode.py", *folders)
    end = time.monotonic() + 60
    while all(process.process.poll() is None for process in running):
        assert time.monotonic() < end
        time.sleep(0.02)
    for process in running:
        process.kill()
    said = "".join(process.err for process in running)
    assert "multinode.py: " in said and "multinode.pt is damaged, or no checkpoint at all" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("rank", [0, 1])
def test_a_crash_shows_its_traceback(rank, tmp_path):
    """The other rank names no cause, but points to the rank that failed."""
    line = crash(tmp_path, rank)
    running = start(tmp_path / "crashing.py", tmp_path, tmp_path)
    statuses = nodes.finish(running)
    said = [process.err for process in running]
    assert statuses == [1, 1], said
    assert line in said[rank] and said[rank].endswith("KeyError: 'boom'\n"), said
    assert "crashing.py: lost another process, whose message says why" in said[1 - rank]
    assert "Traceback" not in said[1 - rank]

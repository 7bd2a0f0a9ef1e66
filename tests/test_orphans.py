"""torchrun killed by SIGKILL: its workers end too, and a job started again finds nobody there."""

import os
import signal
import time

import pytest

from tests.faults import same
from tests.processes import Process


@pytest.mark.parametrize("lesson", ["multigpu_torchrun", "multinode"])
def test_workers_end_with_their_agent(lesson, tmp_path):
    with Process(lesson, 5000, 10, cwd=tmp_path) as process:
        process.wait_for(r"Epoch +10 \| checkpoint")
        workers = process.workers()
        assert len(workers) == 2
        os.kill(process.process.pid, signal.SIGKILL)
        end = time.monotonic() + 60  # a bound, not a measure of speed
        while left := [pid for pid in workers if alive(pid)]:
            assert time.monotonic() < end, f"{len(left)} workers train on without torchrun"
            time.sleep(0.1)


def test_workers_end_whose_agent_has_died_before_they_look(tmp_path):
    with Process("multinode", 5000, 10, cwd=tmp_path) as process:
        end = time.monotonic() + 60
        while len(workers := process.workers()) < 2:
            assert time.monotonic() < end, process.tail
            time.sleep(0.02)
        os.kill(process.process.pid, signal.SIGKILL)  # they import torch
        while left := [pid for pid in workers if alive(pid)]:
            assert time.monotonic() < end, f"{len(left)} workers train on without torchrun"
            time.sleep(0.1)
        assert "Epoch" not in process.out


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_job_started_again_goes_on_from_what_was_saved(tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    with Process("multigpu_torchrun", 12, 4, cwd=tmp_path / "whole") as process:
        assert process.wait() == 0, process.tail
    with Process("multigpu_torchrun", 12, 4, cwd=tmp_path / "killed") as process:
        process.wait_for(r"Epoch +4 \| checkpoint")
        os.kill(process.process.pid, signal.SIGKILL)
    with Process("multigpu_torchrun", 12, 4, cwd=tmp_path / "killed") as process:
        assert process.wait() == 0, process.tail
    file = "multigpu_torchrun.pt"
    assert same(tmp_path / "whole" / file, tmp_path / "killed" / file)

"""If torchrun gets SIGKILL, its workers end too, and a restarted job finds none of them."""

import os
import signal
import time

import pytest

from tests.faults import held_saves, same
from tests.processes import LIMIT, Process, check_gone, run

# As sitecustomize.py on PYTHONPATH: the workers wait, before they import anything.
WAIT = """
import os, sys, time
go = os.path.join(os.path.dirname(__file__), "go")
is_worker = "LOCAL_RANK" in os.environ or "--multiprocessing-fork" in sys.orig_argv
while is_worker and not os.path.exists(go):
    time.sleep(0.05)
"""


def test_workers_end_with_their_agent_and_a_job_started_again_resumes(trained, tmp_path):
    env = held_saves(tmp_path / "held")
    with Process("multigpu_torchrun", 30, 10, cwd=tmp_path, env=env) as process:
        process.wait_for(r"Epoch +20 \| loss")
        assert len(process.workers()) == 2
        os.kill(process.process.pid, signal.SIGKILL)
        check_gone(process)
    (tmp_path / "held" / "hold").unlink()
    process = run("multigpu_torchrun", 30, 10, cwd=tmp_path)
    assert process.status == 0 and "Resuming after epoch 10" in process.lines, process.tail
    assert same(trained("multigpu_torchrun").saves[2], tmp_path / "multigpu_torchrun.pt")


@pytest.mark.parametrize("lesson", ["multigpu", "multinode"])
def test_workers_end_whose_parent_has_died_before_they_look(lesson, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WAIT)
    env = {"PYTHONPATH": str(tmp_path)}
    with Process(lesson, 1_000_000, 10, cwd=tmp_path, env=env) as process:
        end = time.monotonic() + LIMIT
        while len(process.workers()) < 2:
            assert time.monotonic() < end, process.tail
            time.sleep(0.02)
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait()
        (tmp_path / "go").touch()
        check_gone(process)

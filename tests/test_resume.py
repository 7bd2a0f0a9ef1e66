"""After `kill -9` of any worker, the run ends bit for bit like an undisturbed one."""

import os
import signal

import pytest

from tests.faults import held_saves, kill_worker, most_repeated, same
from tests.lessons import resumed, train
from tests.processes import Process, epochs

LESSON = "multigpu_torchrun"
pytestmark = pytest.mark.quick


def test_killed_workers_change_nothing(trained, tmp_path):
    env = held_saves(tmp_path / "held")
    # One restart more than kills: another program may get the port that torchrun has picked.
    spare = ("--standalone", "--max-restarts=4")
    with Process(LESSON, 50, 10, cwd=tmp_path, env=env, launcher=spare) as it:
        seen = it.wait_for(r"Epoch 20 \| loss")
        os.kill(it.workers()[1], signal.SIGKILL)  # during an epoch, a rank that does not save
        seen = it.wait_for("Resuming after epoch 10", seen)
        seen = it.wait_for(r"Epoch 30 \| loss", seen)
        os.kill(it.workers()[0], signal.SIGKILL)  # while it saves
        seen = it.wait_for("Resuming after epoch 20", seen)
        kill_worker(it)  # as soon as it resumes
        (tmp_path / "held" / "hold").unlink()
        assert it.wait() == 0, it.tail
    assert same(trained(LESSON).saves[4], tmp_path / f"{LESSON}.pt")
    assert 0 < most_repeated(it.lines, 10) <= 10


@pytest.mark.parametrize("lesson", [LESSON, "multinode"])
def test_training_resumes_where_it_ended(lesson, tmp_path, capsys):
    undisturbed = train(lesson, tmp_path, 3)[0]
    capsys.readouterr()
    ended = resumed(lesson, tmp_path, 2, 3)[0]
    assert same(ended, undisturbed)
    lines = capsys.readouterr().out.splitlines()
    assert epochs(lines) == [1, 2, 3] and lines.count("Resuming after epoch 2") == 1

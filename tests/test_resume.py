"""`kill -9` of any worker, at any moment: the end is bit for bit that of an undisturbed run."""

import os
import signal

import pytest
import torch

from tests.faults import kill_worker, most_repeated, same, slow_saves
from tests.processes import Process, run

EPOCHS, SAVE_EVERY = 40, 10


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    process = run("multigpu_torchrun", EPOCHS, SAVE_EVERY, cwd=folder)
    assert (process.status, process.err) == (0, "")
    return folder / "multigpu_torchrun.pt"


def test_killed_workers_change_nothing(undisturbed, tmp_path):
    env = slow_saves(tmp_path / "slow")
    with Process("multigpu_torchrun", EPOCHS, SAVE_EVERY, cwd=tmp_path, env=env) as it:
        seen = it.wait_for(r"Epoch 14 \|")
        os.kill(it.workers()[1], signal.SIGKILL)  # amid an epoch, a rank that does not save
        seen = it.wait_for("Resuming after epoch 10", seen)
        seen = it.wait_for(r"Epoch 30 \| loss", seen)
        os.kill(it.workers()[0], signal.SIGKILL)  # while it saves
        seen = it.wait_for(r"Resuming after epoch [23]0", seen)
        kill_worker(it)  # as soon as it goes on
        assert it.wait() == 0
    assert same(undisturbed, tmp_path / "multigpu_torchrun.pt")
    assert 0 < most_repeated(it.lines, SAVE_EVERY) <= SAVE_EVERY


def test_training_goes_on_where_it_ended(undisturbed, tmp_path):
    for total, printed in ((25, range(1, 26)), (EPOCHS, range(26, EPOCHS + 1))):
        process = run("multigpu_torchrun", total, SAVE_EVERY, cwd=tmp_path)
        assert (process.status, process.err) == (0, "")
        assert [int(line.split()[1]) for line in process.lines if "loss" in line] == list(printed)
    assert same(undisturbed, tmp_path / "multigpu_torchrun.pt")


def test_checkpoint_is_complete_and_free_of_ddp(undisturbed):
    checkpoint = torch.load(undisturbed, weights_only=True)
    assert sorted(checkpoint) == ["epochs_run", "model", "optimizer"]
    torch.nn.Linear(20, 1).load_state_dict(checkpoint["model"])  # on one CPU, without DDP
    momentum = [state["momentum_buffer"] for state in checkpoint["optimizer"]["state"].values()]
    assert [buffer.shape for buffer in momentum] == [(1, 20), (1,)]
    assert all(buffer.abs().max() > 0 for buffer in momentum)

"""Two nodes that share no disk: any may hold the newest checkpoint, any may lose its own."""

import os
import re
import shutil
import signal
import time

import pytest
import torch

from tests import nodes
from tests.faults import held_saves, most_repeated, same
from tests.processes import LIMIT, epochs, losses

NAME = "multinode.pt"


def log(found):
    """The lines of the node that prints the losses (rank 0's), and those of the other one."""
    return sorted((node.lines for node in found), key=lambda lines: -len(epochs(lines)))


def wait_for(text, found):
    """Wait until either node prints it."""
    end = time.monotonic() + LIMIT
    while not any(text in line for node in found for line in node.lines):
        running = all(node.process.poll() is None for node in found)
        assert running and time.monotonic() < end, found[0].tail + found[1].tail
        time.sleep(0.05)


@pytest.mark.quick
def test_every_node_saves_and_survives_a_lost_worker(trained, tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    env = held_saves(tmp_path / "held")
    found = nodes.start(folders, 30, 10, env=env)
    wait_for("Epoch 20 | loss", found)
    os.kill(found[1].workers()[0], signal.SIGKILL)
    wait_for("Resuming after epoch 10", found)
    (tmp_path / "held" / "hold").unlink()
    assert nodes.finish(found) == [0, 0]
    for folder in folders:
        assert same(trained("multinode").saves[2], folder / NAME)
    with_losses, without = log(found)
    assert 0 < most_repeated(with_losses, 10) <= 10
    assert epochs(without) == []  # one process prints the global losses
    assert sum("saved" in line for line in without) >= 3


@pytest.mark.parametrize(
    ("on_rank_0", "elsewhere"),
    [
        pytest.param(0, 1, id="newest not on rank 0", marks=pytest.mark.quick),
        pytest.param(None, 1, id="rank 0's disk is new"),
        pytest.param(1, None, id="the other disk is new"),
    ],
)
def test_all_resume_from_the_newest(on_rank_0, elsewhere, trained, tmp_path):
    saves = trained("multinode").saves  # after epochs 10, 20, 30
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder, held in zip(folders, (on_rank_0, elsewhere), strict=True):
        folder.mkdir()
        if held is not None:
            shutil.copy(saves[held], folder / NAME)
    found = nodes.start(folders, 30, 10, ranks=(0, 1))
    assert nodes.finish(found) == [0, 0]
    assert "Resuming after epoch 20" in found[0].lines
    assert epochs(found[0].lines) == list(range(21, 31))
    for folder in folders:
        assert same(saves[2], folder / NAME)


def test_nobody_has_a_checkpoint_and_a_folder_is_shared(trained, tmp_path):
    shared = tmp_path / "shared"
    found = nodes.start([shared, shared], 20, 10)
    assert nodes.finish(found) == [0, 0]
    assert epochs(log(found)[0]) == list(range(1, 21))
    assert same(trained("multinode").saves[1], shared / NAME)
    assert sorted(path.name for path in shared.iterdir()) == [".tmp", NAME]


def test_the_first_lines_are_about_all_nodes(tmp_path):
    """One node's number of processes would look like the job's, so no line has it."""
    found = nodes.start([tmp_path / "one", tmp_path / "two"], 1, 1, nproc=2)
    assert nodes.finish(found) == [0, 0]
    first, other = log(found)
    said = [line for line in first if not line.startswith("Epoch")] + other
    about_the_cpu = [line for line in said if line.endswith(": training on the CPU")]
    assert len(about_the_cpu) == 1
    assert len(said) == 2, said  # and what the other node has saved
    assert not any(re.search(r"\bprocess|\brank", line) for line in said)
    assert losses(first) == [(losses(first)[0][0], 2048)]


def test_unreadable_file_is_an_error_though_the_other_node_has_a_good_one(trained, tmp_path):
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder in folders:
        folder.mkdir()
    shutil.copy(trained("multinode").saves[0], folders[0] / NAME)
    damaged = folders[1] / NAME
    damaged.write_bytes((folders[0] / NAME).read_bytes()[:1000])
    found = nodes.start(folders, 20, 10, ranks=(0, 1), restarts=0)
    assert 0 not in nodes.finish(found)
    said = [line for node in found for line in node.err.splitlines() if "multinode.py: " in line]
    assert len([line for line in said if f"multinode.py: {NAME} is damaged" in line]) == 1
    assert f"UserError: {NAME} is damaged" in found[1].err.partition("Root Cause")[2]  # by @record
    assert not any("[rank" in line for node in found for line in node.err.splitlines())
    assert damaged.stat().st_size == 1000
    assert torch.load(folders[0] / NAME)["epochs_run"] == 10

"""Two nodes that share no disk: any may hold the newest checkpoint, any may lose its own."""

import os
import shutil
import signal

import pytest
import torch

from tests import nodes
from tests.faults import most_repeated, same
from tests.processes import epochs, run

NAME = "multinode.pt"


def log(found):
    """The lines of the node that prints the losses (rank 0's), and those of the other one."""
    return sorted((node.lines for node in found), key=lambda lines: -len(epochs(lines)))


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Checkpoints after 4, 8 and 12 epochs of an undisturbed run of two processes."""
    folder, kept = tmp_path_factory.mktemp("undisturbed"), {}
    for total in (4, 8, 12):
        process = run("multinode", total, 4, cwd=folder)
        assert (process.status, process.err) == (0, "")
        kept[total] = shutil.copy(folder / NAME, folder / f"{total}.pt")
    return kept


def test_every_node_saves_and_survives_a_lost_worker(tmp_path, checkpoints):
    folders = [tmp_path / "a", tmp_path / "b"]
    found = nodes.start(folders, 12, 4)
    while not any("Epoch  6 |" in line for node in found for line in node.lines):
        assert all(node.process.poll() is None for node in found), found[0].tail + found[1].tail
    os.kill(found[1].workers()[0], signal.SIGKILL)
    assert nodes.finish(found) == [0, 0]
    for folder in folders:
        assert same(checkpoints[12], folder / NAME)
    with_losses, without = log(found)
    assert most_repeated(with_losses, 4) <= 4
    assert epochs(without) == []  # the losses are global: one process prints them
    assert sum("saved" in line for line in without) >= 3


@pytest.mark.parametrize(
    ("on_rank_0", "elsewhere"),
    [(4, 8), (None, 8), (8, None)],
    ids=["newest not on rank 0", "rank 0's disk is new", "the other disk is new"],
)
def test_all_resume_from_the_newest(on_rank_0, elsewhere, checkpoints, tmp_path):
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder, held in zip(folders, (on_rank_0, elsewhere), strict=True):
        folder.mkdir()
        if held:
            shutil.copy(checkpoints[held], folder / NAME)
    found = nodes.start(folders, 12, 4, ranks=(0, 1))
    assert nodes.finish(found) == [0, 0]
    assert "Resuming after epoch 8, 64 samples a step" in found[0].lines
    assert epochs(found[0].lines) == [9, 10, 11, 12]
    for folder in folders:
        assert same(checkpoints[12], folder / NAME)


def test_nobody_has_a_checkpoint_and_a_folder_is_shared(tmp_path, checkpoints):
    shared = tmp_path / "shared"
    found = nodes.start([shared, shared], 12, 4)
    assert nodes.finish(found) == [0, 0]
    assert epochs(log(found)[0]) == list(range(1, 13))
    assert same(checkpoints[12], shared / NAME)
    assert sorted(path.name for path in shared.iterdir()) == [".tmp", NAME]


def test_unreadable_file_is_an_error_though_the_other_node_has_a_good_one(tmp_path, checkpoints):
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder in folders:
        folder.mkdir()
    shutil.copy(checkpoints[8], folders[0] / NAME)
    damaged = folders[1] / NAME
    damaged.write_bytes((folders[0] / NAME).read_bytes()[:1000])
    found = nodes.start(folders, 12, 4, ranks=(0, 1), restarts=0)
    assert 0 not in nodes.finish(found)
    said = [line for node in found for line in node.err.splitlines() if "multinode.py: " in line]
    assert len([line for line in said if f"multinode.py: {NAME} is damaged" in line]) == 1
    assert f"Mistake: {NAME} is damaged" in found[1].err.partition("Root Cause")[2]  # by @record
    assert not any("[rank" in line for node in found for line in node.err.splitlines())
    assert damaged.stat().st_size == 1000
    assert torch.load(folders[0] / NAME)["epochs_run"] == 8

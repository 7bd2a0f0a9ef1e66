"""Ranks with unequal numbers of batches train as one process that takes the mean by hand."""

import subprocess
import sys

import pytest

from tests import nodes
from tests.beyond.checkpoints import distance, last_save
from tests.beyond.variants import train_variant
from tests.faults import same
from tests.processes import LIMIT, ROOT, losses, run

EPOCHS = (10, 5)


def by_hand(folder, *options):
    """The checkpoint of one process that averages the gradients of two shares itself."""
    lab = ROOT / "docs" / "labs" / "uneven_mean.py"
    words = [sys.executable, lab, str(EPOCHS[0]), folder / "by_hand.pt", *options]
    subprocess.run(words, check=True, timeout=LIMIT)
    return folder / "by_hand.pt"


def test_the_weights_are_those_of_the_mean_over_all_ranks_by_hand(trained, tmp_path):
    assert distance(last_save(trained("uneven", *EPOCHS)), by_hand(tmp_path)) < 1e-6


def test_the_other_setting_is_the_mean_over_the_ranks_that_have_a_batch(tmp_path):
    active = ("[self.model]", "[self.model], divide_by_initial_world_size=False")
    found = train_variant("uneven", [active], *EPOCHS, folder=tmp_path)
    assert distance(found, by_hand(tmp_path, "--active")) < 1e-6


def test_every_rank_ends_with_the_same_weights_and_optimizer_state(trained, tmp_path):
    folders = [tmp_path / "node0", tmp_path / "node1"]  # each rank is a node, so each one saves
    found = nodes.start(folders, *EPOCHS, lesson="uneven", ranks=(0, 1))
    assert nodes.finish(found) == [0, 0]
    for folder in folders:
        assert same(folder / "uneven.pt", last_save(trained("uneven", *EPOCHS)))


def test_the_loss_is_over_all_samples_in_every_epoch(trained):
    assert [samples for _, samples in losses(trained("uneven", *EPOCHS).lines)] == [2048] * 10


@pytest.mark.parametrize("nproc", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(nproc, trained, tmp_path):
    assert run("uneven", 5, 5, cwd=tmp_path, nproc=nproc).status == 0
    resumed = run("uneven", *EPOCHS, cwd=tmp_path, nproc=nproc)
    assert "Resuming after epoch 5" in resumed.lines
    assert same(tmp_path / "uneven.pt", last_save(trained("uneven", *EPOCHS, nproc=nproc)))

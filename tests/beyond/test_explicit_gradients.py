"""Gradients averaged by hand train as DDP's do."""

from tests.beyond.checkpoints import distance, last_save
from tests.faults import same

SHORT = (5, 5, "--batch_size", 16)


def test_two_processes_train_as_with_ddp_bit_for_bit(trained):
    assert same(last_save(trained("explicit_gradients")), last_save(trained("multinode")))


def test_four_processes_train_as_with_ddp_up_to_rounding(trained):
    one, other = (trained(name, *SHORT, nproc=4) for name in ("explicit_gradients", "multinode"))
    assert distance(last_save(one), last_save(other)) < 1e-6

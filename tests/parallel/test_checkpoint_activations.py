"""Activation checkpointing changes no bit, on any number of ranks."""

import pytest

from parallel import checkpoint_activations
from tests.lessons import distance
from tests.mingpt.threads import train


@pytest.mark.parametrize("size, size_of_parts", [(1, 64), (2, 1), (4, 64)])
def test_it_trains_as_without(size, size_of_parts, text, tmp_path):
    plain, found = (
        train(tmp_path / name, text, size, micro_batch_size=size_of_parts, **script)
        for name, script in (("plain", {}), ("found", {"script": checkpoint_activations}))
    )
    assert distance(found.checkpoint, plain.checkpoint) == 0

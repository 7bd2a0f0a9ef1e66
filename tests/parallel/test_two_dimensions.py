"""Layers split in each node, and sharded between nodes, train as whole ones."""

import pytest

from parallel import two_dimensions
from tests.lessons import distance
from tests.mingpt.threads import train

MICRO = {"n_head": 4, "n_layer": 2, "total_steps": 10}


@pytest.mark.parametrize("size, nodes, own", [
    (4, 2, {"micro_batch_size": 2, "grad_clip": 0.1}), (8, 2, {"grad_clip": 1e6}),
])  # fmt: skip
def test_it_trains_as_one_rank(size, nodes, own, sgd, text, tmp_path):
    own = {**MICRO, **sgd, **own}
    whole = train(tmp_path / "whole", text, 1, **own)
    found = train(tmp_path / "parts", text, size, script=two_dimensions, nodes=nodes, **own)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-6
    assert found.val == pytest.approx(whole.val, abs=1e-5)
    assert max(found.held) < whole.held[0] / nodes + 100  # what is not split is sharded

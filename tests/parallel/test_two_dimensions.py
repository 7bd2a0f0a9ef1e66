"""Layers split in each node, and sharded between nodes, train as whole ones, in a file for all."""

import pytest
import torch

from mingpt import trainer
from parallel import tensor_parallel, two_dimensions
from tests.lessons import distance
from tests.mingpt.threads import train

MICRO = {"n_head": 4, "n_layer": 2, "total_steps": 10}


@pytest.mark.parametrize("size, nodes, own", [
    (4, 2, {"micro_batch_size": 2, "grad_clip": 0.1}), (8, 2, {"grad_clip": 1e6}),
])  # fmt: skip
def test_it_trains_as_one_rank(size, nodes, own, text, tmp_path, monkeypatch):
    """With plain SGD, since AdamW would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))
    own = {**MICRO, "learning_rate": 0.1, "min_learning_rate": 0.1, **own}
    whole = train(tmp_path / "whole", text, 1, **own)
    found = train(tmp_path / "parts", text, size, script=two_dimensions, nodes=nodes, **own)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-6
    assert found.val == pytest.approx(whole.val, abs=1e-5)
    assert max(found.held) < whole.held[0] / nodes + 100  # what is not split is sharded


@pytest.mark.parametrize("first, then, sizes, nodes", [
    (two_dimensions, trainer, (4, 2), (2, 1)), (tensor_parallel, two_dimensions, (2, 4), (1, 2)),
], ids=["to DDP", "from tensor parallelism"])  # fmt: skip
def test_another_script_resumes(first, then, sizes, nodes, text, tmp_path):
    """With AdamW, whose state is divided and ordered as the weights are."""
    rate = {"learning_rate": 1e-3, "min_learning_rate": 1e-3, "warmup_steps": 1}
    whole = train(tmp_path / "whole", text, 1, **MICRO, **rate)
    half = {**MICRO, **rate, "total_steps": 5, "script": first, "nodes": nodes[0]}
    saved = train(tmp_path / "half", text, sizes[0], **half).checkpoint
    rest = {**MICRO, **rate, "script": then, "nodes": nodes[1]}
    found = train(tmp_path / "rest", text, sizes[1], saved, **rest)
    assert "Resuming after step 5" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 2e-5
    assert distance(*(one.checkpoint["optimizer"]["state"] for one in (found, whole))) < 1e-6

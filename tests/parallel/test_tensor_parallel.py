"""A GPT whose layers are split trains as a whole one, in a file that all read."""

import os
import re
import signal

import pytest
import torch

from guard import UserError
from mingpt import trainer
from parallel import fsdp, tensor_parallel
from tests.faults import same, slow_saves
from tests.lessons import distance
from tests.mingpt.conftest import options
from tests.mingpt.threads import train
from tests.processes import STANDALONE, Process

MICRO = {"n_head": 4, "n_layer": 2, "total_steps": 10}


@pytest.fixture
def sgd(monkeypatch):
    """AdamW would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))
    return {"learning_rate": 0.1, "min_learning_rate": 0.1}


@pytest.mark.parametrize("size, own", [
    (2, {}), (4, {}), (2, {"grad_clip": 1e6}), (4, {"micro_batch_size": 2, "seed": 7}),
    (2, {"n_layer": 1, "n_embd": 40, "block_size": 6}),
])  # fmt: skip
def test_it_trains_as_one_rank(size, own, sgd, text, tmp_path):
    own = {**MICRO, **sgd, **own}
    whole = train(tmp_path / "whole", text, 1, **own)
    found = train(tmp_path / "split", text, size, script=tensor_parallel, **own)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-6
    assert found.val == pytest.approx(whole.val, abs=1e-5)
    assert re.search(r"over \d+ tokens", whole.out)[0] in found.out
    weights = whole.checkpoint["model"].items()
    parts = sum(one.numel() for name, one in weights if re.search(r"c_proj.w|c_(attn|fc)", name))
    assert found.held == [whole.held[0] - parts + parts // size] * size


@pytest.mark.parametrize("first, then, sizes", [
    (tensor_parallel, trainer, (4, 2)), (trainer, tensor_parallel, (2, 4)),
    (tensor_parallel, fsdp, (2, 4)), (tensor_parallel, tensor_parallel, (4, 2)),
])  # fmt: skip
def test_the_file_is_that_of_ddp_for_any_number_of_ranks(first, then, sizes, text, tmp_path):
    """With AdamW, whose state is split and ordered as the weights are."""
    rate = {"learning_rate": 1e-3, "min_learning_rate": 1e-3, "warmup_steps": 1}
    whole = train(tmp_path / "whole", text, 1, **MICRO, **rate)
    half = {**MICRO, **rate, "total_steps": 5}
    saved = train(tmp_path / "half", text, sizes[0], script=first, **half).checkpoint
    found = train(tmp_path / "rest", text, sizes[1], saved, script=then, **MICRO, **rate)
    assert "Resuming after step 5" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 2e-5
    assert distance(*(one.checkpoint["optimizer"]["state"] for one in (found, whole))) < 1e-7


def test_heads_that_cannot_be_shared_are_named(text, tmp_path):
    with pytest.raises(UserError, match="2 processes cannot share 3 heads"):
        train(tmp_path, text, 2, script=tensor_parallel)


@pytest.mark.soak  # with dropout, alike on both ranks; it saves as fsdp does, which CI kills
def test_a_killed_worker_changes_nothing(text, tmp_path):
    words = options(data=text, n_head=4)
    for name, env in (("once", {}), ("killed", slow_saves(tmp_path / "slow", seconds=1))):
        folder = tmp_path / name
        folder.mkdir()
        with Process("tensor_parallel", *words, cwd=folder, env=env, launcher=STANDALONE) as it:
            if env:
                seen = it.wait_for(r"Step +18 \| train")
                os.kill(it.workers()[1], signal.SIGKILL)
                it.wait_for("Resuming after step", seen)
            assert it.wait() == 0, it.tail
    once, killed = (tmp_path / name / "tensor_parallel.pt" for name in ("once", "killed"))
    assert same(once, killed)
    assert torch.equal(*(one["cpu"] for one in torch.load(once)["rng"]))

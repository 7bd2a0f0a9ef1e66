"""A GPT whose layers are split trains as a whole one. test_files.py resumes it."""

import re

import pytest
import torch

from guard import UserError
from parallel import tensor_parallel
from tests.lessons import distance
from tests.mingpt.conftest import options
from tests.mingpt.threads import train
from tests.processes import STANDALONE, run

MICRO = {"n_head": 4, "n_layer": 2, "total_steps": 10}


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


def test_heads_that_cannot_be_shared_are_named(text, tmp_path):
    with pytest.raises(UserError, match="2 processes cannot share 3 heads"):
        train(tmp_path, text, 2, script=tensor_parallel)


def test_both_ranks_drop_the_same_units(text, tmp_path):
    words = options(data=text, n_head=4, total_steps=2)
    ran = run("tensor_parallel", *words, cwd=tmp_path, launcher=STANDALONE)
    assert ran.status == 0, ran.tail
    states = torch.load(tmp_path / "tensor_parallel.pt")["rng"]
    assert torch.equal(*(one["cpu"] for one in states))

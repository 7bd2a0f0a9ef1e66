"""A GPT whose experts are divided trains as on one rank, which has them all, in the same file."""

import pytest
import torch
import torch.nn.functional as F

from guard import UserError
from mingpt.experts import Experts
from mingpt.model import MLP, GPTConfig
from parallel import experts
from tests.lessons import distance
from tests.mingpt.threads import train

SHORT = {"script": experts, "total_steps": 10}


@pytest.mark.parametrize("size, chosen, clip, micro_batch_size", [
    (2, 1, 1.0, 64), (4, 2, 0.1, 64), (8, 2, 1e6, 64), (2, 2, 1e6, 2), (4, 1, 1e6, 1),
])  # fmt: skip
def test_it_trains_as_one_rank(
    size, chosen, clip, micro_batch_size, sgd, text, tmp_path, monkeypatch
):
    """The balance is one of all ranks' tokens, so their micro-batches together are that of one."""
    monkeypatch.setattr(experts, "CHOSEN", chosen)
    own = {**SHORT, **sgd, "grad_clip": clip}
    parts = {"micro_batch_size": micro_batch_size * size}
    whole = train(tmp_path / "whole", text, 1, **own, **parts)
    found = train(tmp_path / "parts", text, size, **own, micro_batch_size=micro_batch_size)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-6
    assert found.train == pytest.approx(whole.train, abs=1e-5)
    assert found.val == pytest.approx(whole.val, abs=1e-5)
    state = whole.checkpoint["model"].items()
    held = sum(one.numel() for name, one in state if name.endswith((".first", ".second")))
    assert all(held / size <= one < held / size + whole.held[0] - held for one in found.held)


def test_another_number_of_ranks_resumes(text, tmp_path):
    """With AdamW, whose state is divided as the experts are."""
    rate = {"learning_rate": 1e-3, "min_learning_rate": 1e-3, "warmup_steps": 1}
    whole = train(tmp_path / "whole", text, 1, **SHORT, **rate)
    half = train(tmp_path / "half", text, 4, **{**SHORT, "total_steps": 5}, **rate)
    found = train(tmp_path / "rest", text, 2, half.checkpoint, **SHORT, **rate)
    assert "Resuming after step 5" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 2e-5
    assert distance(*(one.checkpoint["optimizer"]["state"] for one in (found, whole))) < 1e-6


def test_the_balance_is_trained_for(text, tmp_path, monkeypatch):
    seen, busy = [], experts.DividedExperts.busy
    noted = lambda *layer: seen.append(busy(*layer)) or seen[-1]  # noqa: E731
    monkeypatch.setattr(experts.DividedExperts, "busy", noted)
    for weight in (0, 1):
        monkeypatch.setattr(experts, "BALANCE", weight)
        train(tmp_path / str(weight), text, 1, script=experts)
    assert seen[-1].max() < seen[len(seen) // 2 - 1].max() - 0.02


def test_a_token_is_the_sum_of_its_experts_by_their_shares():
    mlp = MLP(GPTConfig(n_head=3, n_embd=48, dropout=0))
    layer, x = Experts(mlp, 8, 2, torch.Generator()), torch.randn(2, 5, 48)
    shares = (x @ layer.router).softmax(-1)
    shares = shares * (shares >= shares.topk(2).values[..., -1:])
    hidden = F.gelu(x[:, None] @ layer.first, approximate="tanh")
    each = hidden @ layer.second  # [batch, expert, time, size]
    due = (shares.transpose(1, 2).unsqueeze(-1) * each).sum(1)
    outputs = layer(x), due
    gradients = (torch.autograd.grad(y.square().sum(), layer.router) for y in outputs)
    assert max((a - b).abs().max() for a, b in (outputs, *zip(*gradients, strict=True))) < 1e-6


def test_experts_that_cannot_be_shared_are_named(text, tmp_path):
    with pytest.raises(UserError, match="3 processes cannot share 8 experts: start a number"):
        train(tmp_path, text, 3, batch_size=9, script=experts)

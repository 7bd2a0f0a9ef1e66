"""With slices of each sequence, ranks train a GPT as one rank does with the whole of it."""

import pytest
import torch

from docs.theory.attention_in_slices import errors, gather, ring, ulysses
from guard import UserError
from mingpt import trainer
from mingpt.model import CausalSelfAttention, GPTConfig
from parallel import context_parallel
from tests.lessons import distance
from tests.mingpt.threads import train
from tests.worlds import world

RATE = {"learning_rate": 1e-3, "min_learning_rate": 1e-3}  # constant, whatever the total
SGD = {"learning_rate": 0.1, "min_learning_rate": 0.1}


@pytest.fixture
def plain_sgd(monkeypatch):
    """AdamW would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """Trained on one rank, which has whole sequences."""
    return train(tmp_path_factory.mktemp("whole"), text, 1, **RATE)


@pytest.mark.parametrize("size, size_of_parts, clip", [
    (2, 64, 1e6), (2, 64, 0.1), (2, 4, 0.1), (4, 64, 0.1), (8, 64, 0.1),
])  # fmt: skip
def test_plain_sgd_sees_the_same_gradients(size, size_of_parts, clip, plain_sgd, text, tmp_path):
    one = train(tmp_path / "one", text, 1, grad_clip=clip, **SGD)
    own = {"script": context_parallel, "micro_batch_size": size_of_parts, "grad_clip": clip}
    found = train(tmp_path / "own", text, size, **own, **SGD)
    assert distance(found.checkpoint, one.checkpoint) < 1e-6
    assert found.train == pytest.approx(one.train, abs=1e-5)
    assert found.val == pytest.approx(one.val, abs=1e-5)


@pytest.mark.parametrize("first, then, sizes", [
    (context_parallel, context_parallel, (2, 4)), (context_parallel, trainer, (4, 2)),
    (trainer, context_parallel, (2, 4)),
], ids=["more ranks", "to DDP", "from DDP"])  # fmt: skip
def test_the_file_is_that_of_ddp_for_any_number_of_ranks(first, then, sizes, whole, text, tmp_path):
    half = train(tmp_path / "half", text, sizes[0], script=first, total_steps=12, **RATE)
    found = train(tmp_path / "rest", text, sizes[1], half.checkpoint, script=then, **RATE)
    assert "Resuming after step 12" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5
    mine, other = (one.checkpoint["optimizer"]["state"] for one in (found, whole))
    assert distance(mine, other) < 1e-5


def test_it_drops_what_the_model_drops():
    module = CausalSelfAttention(GPTConfig(n_head=3, n_embd=48, dropout=0.5))
    x = torch.randn(2, 16, 48)

    def output(attend):
        torch.manual_seed(0)
        return attend(module, x)

    ways = CausalSelfAttention.forward, context_parallel.attend
    one, other = world(1, lambda rank: [*map(output, ways)])[0]
    assert (one - other).abs().max() < 1e-6


@pytest.mark.parametrize("size", [2, 4, 8])
@pytest.mark.parametrize("way", [gather, ring, ulysses])
def test_attention_over_slices_is_that_over_the_whole(way, size):
    seed = torch.Generator().manual_seed(0)
    parts = torch.randn(3, 2, 8, 32, 16, generator=seed, dtype=torch.float64)
    assert max(sum(world(size, lambda rank: errors(way, parts)), ())) < 1e-12


def test_ranks_that_do_not_divide_the_sequence(text, tmp_path):
    with pytest.raises(UserError, match=r"block_size is 15.* processes, 2: the nearest is 16"):
        train(tmp_path, text, 2, script=context_parallel, block_size=15)

"""With slices of each sequence, ranks train a GPT as one rank does with the whole of it."""

import pytest
import torch

from guard import UserError
from mingpt.model import CausalSelfAttention, GPTConfig
from parallel import context_parallel
from tests.lessons import distance
from tests.mingpt.threads import train
from tests.worlds import world


@pytest.mark.parametrize("size, size_of_parts, clip", [
    (2, 64, 1e6), (2, 64, 0.1), (2, 4, 0.1), (4, 64, 0.1), (8, 64, 0.1),
])  # fmt: skip
def test_plain_sgd_sees_the_same_gradients(size, size_of_parts, clip, sgd, text, tmp_path):
    one = train(tmp_path / "one", text, 1, grad_clip=clip, **sgd)
    own = {"script": context_parallel, "micro_batch_size": size_of_parts, "grad_clip": clip}
    found = train(tmp_path / "own", text, size, **own, **sgd)
    assert distance(found.checkpoint, one.checkpoint) < 1e-6
    assert found.train == pytest.approx(one.train, abs=1e-5)
    assert found.val == pytest.approx(one.val, abs=1e-5)


def test_it_drops_what_the_model_drops():
    module = CausalSelfAttention(GPTConfig(n_head=3, n_embd=48, dropout=0.5))
    x = torch.randn(2, 16, 48)

    def output(attend):
        torch.manual_seed(0)
        return attend(module, x)

    ways = CausalSelfAttention.forward, context_parallel.attend
    one, other = world(1, lambda rank: [*map(output, ways)])[0]
    assert (one - other).abs().max() < 1e-6


def test_ranks_that_do_not_divide_the_sequence(text, tmp_path):
    with pytest.raises(UserError, match=r"block_size is 15.* processes, 2: the nearest is 16"):
        train(tmp_path, text, 2, script=context_parallel, block_size=15)

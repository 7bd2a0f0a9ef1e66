"""The model of time that 1a_speed states, against calculations by hand."""

import pytest
import torch

from docs.theory.step_time import MODELS, Model, all_reduce, step, timeline
from mingpt.config import Config

TOY = Model("toy", size=100, backward=10.0)


def test_buckets_of_two_sizes_on_a_fast_and_on_a_slow_network():
    assert all_reduce(1000, 4, 5, 10) == 6 * 5 + 6 * 250 / 10
    # Two processes, latency 0.5, 40 bytes per second: 1 + 40/40 = 2 s, and 1 + 20/40 = 1.5 s.
    network = 2, 0.5, 40
    assert timeline(TOY, 40, *network) == [(4, 4, 6), (8, 8, 10), (10, 10, 11.5)]
    assert step(TOY, 40, *network) == (11.5, 10 + 5.5)
    # 1 + 40/8 = 6 s, and 1 + 20/8 = 3.5 s: buckets wait for each other.
    network = 2, 0.5, 8
    assert timeline(TOY, 40, *network) == [(4, 4, 10), (8, 10, 16), (10, 16, 19.5)]
    assert step(TOY, 40, *network) == (19.5, 10 + 15.5)


@pytest.mark.parametrize(
    "name, config, characters",
    [("gpt-micro", Config(), 88), ("GPT-2 124M", Config(model="gpt2", block_size=1024), 50257)],
)
def test_the_size_of_a_model(name, config, characters):
    with torch.device("meta"):
        weights = sum(one.numel() for one in config.build(characters).parameters())
    assert {model.name: model.size for model in MODELS}[name] == 4 * weights

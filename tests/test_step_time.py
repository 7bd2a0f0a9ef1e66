"""The model of time that 1a_speed states, against calculations by hand."""

import pytest
import torch

from docs.theory.step_time import MODELS, Model, all_reduce, buckets, step, timeline
from mingpt.config import Config

TOY = Model("toy", size=100, backward=10.0)


def test_an_all_reduce():
    assert all_reduce(1000, 1, 5, 10) == 0  # one process sends nothing
    assert all_reduce(1000, 2, 5, 10) == 2 * 5 + 2 * 500 / 10
    assert all_reduce(1000, 4, 5, 10) == 6 * 5 + 6 * 250 / 10


def test_buckets():
    assert buckets(100, 40) == [40, 40, 20]
    assert buckets(100, 50) == [50, 50]
    assert buckets(100, 200) == [100]


def test_a_fast_network_leaves_the_last_bucket():
    # Two processes, latency 0.5, 40 bytes per second: 1 + 40/40 = 2 s, and 1 + 20/40 = 1.5 s.
    network = 2, 0.5, 40
    assert timeline(TOY, 40, *network) == [(4, 4, 6), (8, 8, 10), (10, 10, 11.5)]
    assert step(TOY, 40, *network) == (11.5, 10 + 5.5)


def test_on_a_slow_network_buckets_wait_for_each_other():
    # 1 + 40/8 = 6 s, and 1 + 20/8 = 3.5 s.
    network = 2, 0.5, 8
    assert timeline(TOY, 40, *network) == [(4, 4, 10), (8, 10, 16), (10, 16, 19.5)]
    assert step(TOY, 40, *network) == (19.5, 10 + 15.5)


def test_one_bucket_cannot_overlap():
    assert step(TOY, 100, 2, 0.5, 40) == (13.5, 13.5)


@pytest.mark.parametrize(
    "name, config, characters",
    [("gpt-micro", Config(), 88), ("GPT-2 124M", Config(model="gpt2", block_size=1024), 50257)],
)
def test_the_size_of_a_model(name, config, characters):
    with torch.device("meta"):
        weights = sum(one.numel() for one in config.build(characters).parameters())
    assert {model.name: model.size for model in MODELS}[name] == 4 * weights

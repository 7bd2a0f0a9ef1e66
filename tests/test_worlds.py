"""Ranks in threads fail as a test must: with the cause, in time, and leaving no rank behind."""

import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests import worlds
from tests.worlds import world


def test_the_exception_of_a_rank_is_raised_and_no_rank_is_left(monkeypatch):
    monkeypatch.setattr(worlds, "TIMEOUT", timedelta(seconds=5))

    def fail(rank):
        if rank == 1:
            raise ValueError("rank 1 is broken")
        dist.all_reduce(torch.zeros(1))  # rank 1 never comes

    before = threading.active_count()
    with pytest.raises(ValueError, match="rank 1 is broken"):
        world(4, fail)
    assert threading.active_count() == before and not dist.is_initialized()
    assert world(2, lambda rank: dist.get_world_size() + rank) == [2, 3]

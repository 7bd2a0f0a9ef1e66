"""Weights averaged every T seconds: rank 0's clock decides for all ranks."""

import types

import pytest
import torch.distributed as dist

from tests.faults import same
from tests.lessons import script, train


@pytest.mark.parametrize("rank_0_is, every", [("fast", 10), ("slow", 10**6)])
def test_rank_0s_clock_decides_however_wrong_the_others_are(rank_0_is, every, tmp_path):
    clocks = [0.0, 0.0]

    def clock():
        rank = dist.get_rank()
        clocks[rank] += 1 if (rank == 0) == (rank_0_is == "fast") else 1e-9
        return clocks[rank]

    by_time = script("local_sgd_by_time")
    by_time.time = types.SimpleNamespace(perf_counter=clock)
    # Averaged whenever the ranks ask for the time, or, if the clock stands still, at saves alone.
    by_steps = train("local_sgd", tmp_path, 2, 1, changes=[("= 10  #", f"= {every}  #")])
    assert same(train(by_time, tmp_path, 2, 1), by_steps)

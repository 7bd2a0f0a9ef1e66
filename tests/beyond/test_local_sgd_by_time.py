"""Weights averaged every T seconds: rank 0's clock decides for all ranks."""

import re

import pytest

from tests.processes import LESSONS
from tools.series import observe, stages

# As sitecustomize.py on PYTHONPATH: a rank's clock is a million times too fast, or too slow.
CLOCKS = """
import os, time
clock = time.perf_counter
factor = {{"0": {}, "1": {}}}.get(os.environ.get("RANK"), 1)
time.perf_counter = lambda: clock() * factor
"""
STEPS, SAVES, EVERY = 160, 5, 10


@pytest.mark.parametrize(
    "clocks, averages", [((1e6, 1e-6), STEPS // EVERY), ((1e-6, 1e6), 0)], ids=["fast", "slow"]
)
def test_rank_0s_clock_decides_however_wrong_the_others_are(
    clocks, averages, tmp_path, monkeypatch
):
    (tmp_path / "sitecustomize.py").write_text(CLOCKS.format(*clocks))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    stage = stages.of(LESSONS["local_sgd_by_time"])[-1]
    output = observe.output.__wrapped__(stage, ("5", "1"))  # uncached: it cannot tell the clocks
    assert "Epoch  5 | checkpoint saved" in output
    for count, what in (
        (STEPS // EVERY, "broadcasts"),
        (averages + 2 * SAVES, "all-reduces of 20 numbers"),
    ):
        assert re.findall(rf"(\d+) {what}", output) == [str(count)] * 2  # on both ranks

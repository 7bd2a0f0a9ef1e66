"""Saving must not slow the GPT down on a CPU: its speed after the first save, and before."""

import re
import statistics

import pytest

from tests.mingpt.conftest import options
from tests.processes import ONCE, SHARED, run

pytestmark = pytest.mark.soak


def speeds(lines):
    """The tokens per second before and after the first save, without those of the first line."""
    saved = next(number for number, line in enumerate(lines) if "checkpoint saved" in line)
    found = [
        [float(one[1].replace(",", "")) for line in part
         if (one := re.search(r"\| ([\d,]+) tokens/s", line))]
        for part in (lines[:saved], lines[saved:])
    ]  # fmt: skip
    return found[0][1:], found[1]


def test_a_save_slows_nothing_down(tmp_path, note):
    (tmp_path / "text").write_text("a text to learn, once more and again\n" * 500)
    words = options(
        data="text", model="gpt-micro", block_size=64, batch_size=12, total_steps=600,
        save_every=200, eval_every=1000, log_every=20,
    )  # fmt: skip
    ratios = []
    for number in range(3):
        env = SHARED | {"OMP_NUM_THREADS": "2"}
        it = run(
            "mingpt", *words, "--checkpoint_path", f"{number}.pt", cwd=tmp_path, nproc=1,
            launcher=ONCE, env=env,
        )  # fmt: skip
        assert (it.status, it.err) == (0, ""), it.tail
        before, after = map(statistics.median, speeds(it.lines))
        ratios.append(after / before)
    ratio = statistics.median(ratios)
    note(f"the GPT on two threads after its first save: {ratio:.2f} times as fast as before")
    assert ratio > 0.75, ratios  # with two teams of OpenMP threads it is about one half

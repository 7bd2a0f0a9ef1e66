"""A thousand steps of the laptop's preset give one curve on 1, 2 or 4 processes.

This needs a low enough learning rate: if training is chaotic, rounding separates the curves.
"""

import pytest

from tests.mingpt.texts import curve
from tests.processes import STANDALONE, run

pytestmark = pytest.mark.soak


def test_a_thousand_steps(tmp_path, note):
    found = []
    for nproc in (1, 2, 4):
        place = tmp_path / str(nproc)
        place.mkdir()
        words = ("--total_steps", 1000, "--learning_rate", 1e-3, "--eval_every", 50)
        words += ("--save_every", 500, "--cache", tmp_path / "data")
        process = run(
            "mingpt", *words, cwd=place, nproc=nproc, launcher=STANDALONE, limit=600
        )  # fmt: skip
        assert process.status == 0, process.tail
        found.append(curve(place))
    assert list(found[0]) == list(range(50, 1001, 50))
    worst = max(max(values) - min(values) for values in zip(*map(dict.values, found), strict=True))
    note(f"mingpt, 1000 steps at 1, 2 and 4 processes, learning rate 1e-3: validation losses agree "
         f"to {worst:.0e}")  # fmt: skip
    assert worst < 1e-4

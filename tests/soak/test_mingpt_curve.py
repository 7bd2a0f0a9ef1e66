"""A thousand steps of the laptop's preset give one curve on 1, 2 or 4 processes.

This needs a low enough learning rate: if training is chaotic, rounding separates the curves.
"""

import pytest

from tests.mingpt.texts import curve
from tests.processes import STANDALONE, run

pytestmark = pytest.mark.soak


def apart(folder, *options, splits, env=()):
    """Per step, the largest difference between the validation losses of `splits`."""
    found = []
    for nproc in splits:
        place = folder / str(nproc)
        place.mkdir()
        words = ("--eval_every", 50, "--save_every", 500, "--cache", folder / "data", *options)
        process = run(
            "mingpt", *words, cwd=place, nproc=nproc, launcher=STANDALONE, env=env, limit=600
        )
        assert process.status == 0, process.tail
        found.append(curve(place))
    losses = {step: [one[step] for one in found] for step in found[0]}
    return {step: max(values) - min(values) for step, values in losses.items()}


def test_a_thousand_steps(tmp_path, note):
    words = ("--total_steps", 1000, "--learning_rate", 1e-3)
    found = apart(tmp_path, *words, splits=(1, 2, 4))
    worst = max(found.values())
    note(f"mingpt, 1000 steps at 1, 2 and 4 processes, learning rate 1e-3: validation losses agree "
         f"to {worst:.0e}")  # fmt: skip
    assert list(found) == list(range(50, 1001, 50))
    assert worst < 1e-4


def test_in_64_bits_until_chaos_parts_them(tmp_path, note):
    (tmp_path / "sitecustomize.py").write_text(
        "import torch\n\ntorch.set_default_dtype(torch.float64)\n"
    )
    env = {"PYTHONPATH": str(tmp_path)}
    found = apart(tmp_path, "--total_steps", 400, splits=(1, 2), env=env)
    told = ", ".join(f"{value:.0e} at step {step}" for step, value in found.items())
    note(f"mingpt at 1 and 2 processes, learning rate 8e-3, in 64 bits: apart by {told}")
    assert max(found[50], found[100]) < 1e-10

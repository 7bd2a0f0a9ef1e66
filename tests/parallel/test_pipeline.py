"""A pipeline trains a GPT as one rank does, at any size. test_files.py resumes it."""

from types import SimpleNamespace

import pytest
import torch

from guard import UserError
from parallel import pipeline
from tests.lessons import distance
from tests.mingpt.threads import train

SHAPE = {"n_layer": 8, "total_steps": 8}


@pytest.mark.parametrize("clip", [0.5, 1e6], ids=["clipped", "whole"])
@pytest.mark.parametrize("size, size_of_parts", [(1, 1), (2, 64), (4, 1), (8, 1)])
def test_it_makes_the_steps_of_one_rank(size, size_of_parts, clip, sgd, text, tmp_path):
    """Clipped and not, since clipping alone would hide a factor."""
    script, trainers = SimpleNamespace(**vars(pipeline)), []
    script.Trainer = lambda *args: trainers.append(pipeline.Trainer(*args)) or trainers[-1]
    plain = {"micro_batch_size": size_of_parts, "grad_clip": clip, **SHAPE, **sgd}
    one = train(tmp_path / "one", text, 1, **plain)
    found = train(tmp_path / "found", text, size, script=script, **plain)
    assert distance(found.checkpoint, one.checkpoint) < 1.2e-7  # a bit of LayerNorm's 1
    assert found.train == pytest.approx(one.train, abs=1e-6)
    assert found.val == pytest.approx(one.val, abs=1e-6)
    tied = [w for each in trainers if not (w := each.whole.lm_head.weight).is_meta]
    assert len(tied) == min(size, 2) and all(torch.equal(copy, tied[0]) for copy in tied)
    assert sum(found.held) == one.held[0] + tied[0].numel() * (size > 1)


def test_what_has_no_stages_is_refused(text, tmp_path):
    with pytest.raises(UserError, match="n_layer is 2, but 3 stages need at least 3"):
        train(tmp_path, text, 3, script=pipeline, n_layer=2, batch_size=12)
    with pytest.raises(UserError, match="no pipeline in fp16: pass --precision bf16"):
        train(tmp_path, text, 2, script=pipeline, precision="fp16")

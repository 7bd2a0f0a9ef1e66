"""A pipeline trains a GPT as one rank does, in a file that all read, at any size."""

import os
import signal
from types import SimpleNamespace

import pytest
import torch

from guard import UserError
from mingpt import trainer
from parallel import pipeline
from tests.faults import leftovers, same, slow_saves
from tests.lessons import distance
from tests.mingpt.conftest import options
from tests.mingpt.threads import train
from tests.processes import STANDALONE, Process

RATE = {"n_layer": 5, "batch_size": 12, "learning_rate": 1e-3, "min_learning_rate": 1e-3}
PLAIN = {"n_layer": 8, "total_steps": 8, "learning_rate": 0.1, "min_learning_rate": 0.1}


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """Trained on one rank, without stages."""
    return train(tmp_path_factory.mktemp("whole"), text, 1, **RATE)


@pytest.mark.parametrize("clip", [0.5, 1e6], ids=["clipped", "whole"])
@pytest.mark.parametrize("size, size_of_parts", [(1, 1), (2, 64), (4, 1), (8, 1)])
def test_it_makes_the_steps_of_one_rank(size, size_of_parts, clip, text, tmp_path, monkeypatch):
    """With plain SGD: AdamW, or clipping alone, would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))
    script, trainers = SimpleNamespace(**vars(pipeline)), []
    script.Trainer = lambda *args: trainers.append(pipeline.Trainer(*args)) or trainers[-1]
    plain = {"micro_batch_size": size_of_parts, "grad_clip": clip, **PLAIN}
    one = train(tmp_path / "one", text, 1, **plain)
    found = train(tmp_path / "found", text, size, script=script, **plain)
    assert distance(found.checkpoint, one.checkpoint) < 1.2e-7  # a bit of LayerNorm's 1
    assert found.train == pytest.approx(one.train, abs=1e-6)
    assert found.val == pytest.approx(one.val, abs=1e-6)
    tied = [w for each in trainers if not (w := each.whole.lm_head.weight).is_meta]
    assert len(tied) == min(size, 2) and all(torch.equal(copy, tied[0]) for copy in tied)
    assert sum(found.held) == one.held[0] + tied[0].numel() * (size > 1)


@pytest.mark.parametrize("first, then, sizes", [
    (pipeline, pipeline, (2, 4)), (pipeline, trainer, (4, 2)), (trainer, pipeline, (2, 3)),
], ids=["more stages", "to DDP", "from DDP"])  # fmt: skip
def test_the_file_is_that_of_ddp_for_any_number_of_ranks(first, then, sizes, whole, text, tmp_path):
    half = train(tmp_path / "half", text, sizes[0], script=first, total_steps=12, **RATE)
    found = train(tmp_path / "rest", text, sizes[1], half.checkpoint, script=then, **RATE)
    assert "Resuming after step 12" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5
    assert list(found.checkpoint["model"]) == list(whole.checkpoint["model"])
    states = (one.checkpoint["optimizer"]["state"] for one in (found, whole))
    assert distance(*states) < 1e-5


def test_what_has_no_stages_is_refused(text, tmp_path):
    with pytest.raises(UserError, match="n_layer is 2, but 3 stages need at least 3"):
        train(tmp_path, text, 3, script=pipeline, **RATE | {"n_layer": 2})
    with pytest.raises(UserError, match="no pipeline in fp16: pass --precision bf16"):
        train(tmp_path, text, 2, script=pipeline, **RATE, precision="fp16")


def test_a_worker_killed_while_another_saves_changes_nothing(text, tmp_path):
    """Real processes, as the page starts them, with dropout."""
    env = slow_saves(tmp_path / "slow", seconds=1)
    for name in ("once", "killed"):
        (tmp_path / name).mkdir()
        words = options(data=text)
        with Process("pipeline", *words, cwd=tmp_path / name, env=env, launcher=STANDALONE) as it:
            if name == "killed":
                seen = it.wait_for(r"Step +18 \| train")  # the save of step 16 takes seconds
                os.kill(it.workers()[1], signal.SIGKILL)
                it.wait_for("Resuming after step", seen)
            assert it.wait() == 0, it.tail
    assert same(tmp_path / "once" / "pipeline.pt", tmp_path / "killed" / "pipeline.pt")
    assert sorted(leftovers(tmp_path / "killed")) == ["data", "pipeline.jsonl", "pipeline.pt"]

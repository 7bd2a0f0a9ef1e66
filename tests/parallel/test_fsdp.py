"""Under FSDP and HSDP a GPT trains as under DDP, in a file that all read, at any size."""

import os
import signal

import pytest
import torch

from mingpt import trainer
from parallel import fsdp, hsdp
from tests.faults import leftovers, same, slow_saves
from tests.lessons import distance
from tests.mingpt.conftest import options
from tests.mingpt.threads import train
from tests.processes import STANDALONE, Process

RATE = {"learning_rate": 1e-3, "min_learning_rate": 1e-3}  # constant, whatever the total


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """Trained on one rank, without FSDP."""
    return train(tmp_path_factory.mktemp("whole"), text, 1, **RATE)


@pytest.mark.parametrize("script, size, nodes, size_of_parts", [
    (fsdp, 2, 1, 64), (fsdp, 2, 1, 1), (fsdp, 4, 1, 64), (fsdp, 8, 1, 64),
    (hsdp, 4, 2, 64), (hsdp, 4, 2, 1), (hsdp, 8, 2, 64), (hsdp, 8, 4, 64), (hsdp, 2, 2, 64),
])  # fmt: skip
def test_it_trains_as_one_rank(script, size, nodes, size_of_parts, whole, text, tmp_path):
    own = {"script": script, "nodes": nodes, "micro_batch_size": size_of_parts}
    found = train(tmp_path, text, size, **own, **RATE)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5
    mine, other = (one.checkpoint["optimizer"]["state"] for one in (found, whole))
    assert distance(mine, other) < 1e-5
    assert sum(found.held) == nodes * whole.held[0]  # a whole model per node


@pytest.mark.parametrize("script, nodes", [(fsdp, 1), (hsdp, 2)])
def test_plain_sgd_sees_the_same_gradients(script, nodes, text, tmp_path, monkeypatch):
    """AdamW and clipping would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))
    rate = {"learning_rate": 0.1, "min_learning_rate": 0.1, "grad_clip": 1e6}
    ddp = train(tmp_path / "ddp", text, 2, **rate).checkpoint
    own = {"script": script, "nodes": nodes, "micro_batch_size": 1}
    found = train(tmp_path / "fsdp", text, 4, **own, **rate).checkpoint
    assert distance(found, ddp) < 1e-5


@pytest.mark.parametrize("first, then, sizes", [
    (fsdp, fsdp, (2, 4)), (fsdp, trainer, (4, 2)), (trainer, fsdp, (2, 4)), (hsdp, fsdp, (4, 2)),
], ids=["more ranks", "to DDP", "from DDP", "from HSDP"])  # fmt: skip
def test_the_file_is_that_of_ddp_for_any_number_of_ranks(first, then, sizes, whole, text, tmp_path):
    own = {"script": first, "nodes": 2 if first is hsdp else 1, "total_steps": 12}
    half = train(tmp_path / "half", text, sizes[0], **own, **RATE)
    found = train(tmp_path / "rest", text, sizes[1], half.checkpoint, script=then, **RATE)
    assert "Resuming after step 12" in found.out
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5


def test_a_worker_killed_while_another_saves_changes_nothing(text, tmp_path):
    """Real processes, as the page starts them, with dropout."""
    words = options(data=text)
    (tmp_path / "once").mkdir()
    with Process("fsdp", *words, cwd=tmp_path / "once", launcher=STANDALONE) as it:
        assert it.wait() == 0, it.tail
    (tmp_path / "killed").mkdir()
    env = slow_saves(tmp_path / "slow", seconds=1)
    with Process("fsdp", *words, cwd=tmp_path / "killed", env=env, launcher=STANDALONE) as it:
        seen = it.wait_for(r"Step +18 \| train")  # the save of step 16 takes seconds
        os.kill(it.workers()[1], signal.SIGKILL)
        it.wait_for("Resuming after step", seen)
        assert it.wait() == 0, it.tail
    assert same(tmp_path / "once" / "fsdp.pt", tmp_path / "killed" / "fsdp.pt")
    assert sorted(leftovers(tmp_path / "killed")) == ["data", "fsdp.jsonl", "fsdp.pt"]

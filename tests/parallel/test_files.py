"""The checkpoint of every script is that of DDP, for any number of ranks, and survives a kill."""

import os
import signal

import pytest

from mingpt import trainer
from parallel import context_parallel, fsdp, hsdp, pipeline, tensor_parallel, two_dimensions
from tests.faults import leftovers, same, slow_saves
from tests.lessons import distance
from tests.mingpt.conftest import options
from tests.mingpt.threads import train
from tests.processes import STANDALONE, Process

# Sizes that every script can divide, and a constant rate, whatever the total.
SHAPE = {"n_head": 4, "n_layer": 5, "batch_size": 12}
RATE = {"learning_rate": 1e-3, "min_learning_rate": 1e-3}
ON_TWO_NODES = (hsdp, two_dimensions)


def run(script, *args, **others):
    nodes = 2 if script in ON_TWO_NODES else 1
    return train(*args, script=script, nodes=nodes, **SHAPE, **RATE, **others)


@pytest.fixture(scope="module")
def whole(text, tmp_path_factory):
    """Trained on one rank, without interruption."""
    return run(trainer, tmp_path_factory.mktemp("whole"), text, 1)


@pytest.mark.parametrize("to_ddp", [True, False], ids=["to DDP", "from DDP"])
@pytest.mark.parametrize(
    "script", [fsdp, hsdp, tensor_parallel, two_dimensions, pipeline, context_parallel]
)
def test_the_file_is_that_of_ddp_for_any_number_of_ranks(script, to_ddp, whole, text, tmp_path):
    """With AdamW, whose state is divided and ordered as the weights are."""
    (first, then), sizes = ((script, trainer), (4, 2)) if to_ddp else ((trainer, script), (2, 4))
    half = run(first, tmp_path / "half", text, sizes[0], total_steps=12)
    found = run(then, tmp_path / "rest", text, sizes[1], half.checkpoint)
    assert "Resuming after step 12" in found.out
    assert list(found.checkpoint["model"]) == list(whole.checkpoint["model"])
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5
    states = (one.checkpoint["optimizer"]["state"] for one in (found, whole))
    assert distance(*states) < 1e-5


@pytest.mark.parametrize("lesson", ["fsdp", "pipeline"])
def test_a_worker_killed_while_another_saves_changes_nothing(lesson, text, tmp_path):
    """Real processes, as the page starts them, with dropout."""
    words, file = options(data=text), f"{lesson}.pt"
    for name, env in (("once", {}), ("killed", slow_saves(tmp_path / "slow", seconds=1))):
        folder = tmp_path / name
        folder.mkdir()
        with Process(lesson, *words, cwd=folder, env=env, launcher=STANDALONE) as it:
            if env:
                seen = it.wait_for(r"Step +18 \| train")  # the save of step 16 takes seconds
                os.kill(it.workers()[1], signal.SIGKILL)
                it.wait_for("Resuming after step", seen)
            assert it.wait() == 0, it.tail
    assert same(tmp_path / "once" / file, tmp_path / "killed" / file)
    assert sorted(leftovers(tmp_path / "killed")) == ["data", f"{lesson}.jsonl", file]

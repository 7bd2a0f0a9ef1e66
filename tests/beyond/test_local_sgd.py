"""Weights averaged every N steps: N = 1 is DDP, and a killed run ends like an undisturbed one."""

import os
import re
import signal

import pytest
import torch

from tests import nodes
from tests.beyond.checkpoints import distance, last_save
from tests.faults import held_saves, kept_saves, same
from tests.processes import LESSONS, ROOT, Process
from tools import processes
from tools.processes import environment
from tools.series import observe, stages

EVERY_STEP = ("SYNC_EVERY = 10", "SYNC_EVERY = 1")
OWN = """
        if self.steps % SYNC_EVERY == 0:
            self._average(self.model.parameters())
"""
TORCHS = "\n        self.averager.average_parameters(self.model.parameters())\n"
COUNTED = "        self.steps = self.epochs_run * len(train_data)\n"
AVERAGER = """\
        from torch.distributed.algorithms.model_averaging import averagers

        self.averager = averagers.PeriodicModelAverager(period=10, warmup_steps=9)
"""
WITH_ADAM = ("SGD(model.parameters(), lr=1e-3, momentum=0.9)", "Adam(model.parameters(), lr=1e-2)")


@pytest.fixture
def changed(tmp_path):
    """`changed(lesson, arguments, (old, new), ...)`: a run of a changed copy of the lesson's
    script. Its `saves` are those of local rank 0."""

    def train(lesson, args, *changes):
        text = (ROOT / LESSONS[lesson].file).read_text()
        for old, new in changes:
            assert text.count(old) == 1
            text = text.replace(old, new)
        folder = tmp_path / f"{lesson}_{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "changed.py").write_text(text)
        paths = f"{kept_saves(folder / 'saves')['PYTHONPATH']}:{ROOT}"
        ran = processes.run(
            ["torchrun", "--standalone", "--nproc_per_node=2", "changed.py", *map(str, args)],
            cwd=folder,
            env=environment(PYTHONPATH=paths, OMP_NUM_THREADS="1"),
        )
        assert ran.status == 0, ran.tail
        ran.saves = sorted((folder / "saves").glob("*.pt"), key=lambda path: int(path.stem))
        return ran

    return train


def test_averaged_at_every_step_two_processes_train_as_with_ddp_up_to_rounding(trained, changed):
    one, other = changed("local_sgd", (50, 10), EVERY_STEP).saves, trained("multinode").saves
    assert len(one) == len(other) == 5
    for mine, theirs in zip(one, other, strict=True):
        assert distance(mine, theirs) < 1e-6
        assert momentum_distance(mine, theirs) < 1e-5  # it is a sum of about ten gradients


def momentum_distance(one, other):
    states, others = (torch.load(file)["optimizer"]["state"] for file in (one, other))
    return max(
        (states[key]["momentum_buffer"] - others[key]["momentum_buffer"]).abs().max().item()
        for key in states
    )


def test_averaged_at_every_step_adam_trains_differently_than_with_ddp(changed):
    """Each rank computes second moments from its gradients alone, and no step averages them."""
    one = changed("local_sgd", (5, 5), EVERY_STEP, WITH_ADAM).saves[-1]
    other = changed("multinode", (5, 5), WITH_ADAM).saves[-1]
    assert distance(one, other) > 1e-4


def test_torchs_own_averager_does_the_same(changed, trained):
    """It counts steps from 0 and averages before it adds one, hence the 9."""
    one = changed("local_sgd", (20, 7), (OWN, TORCHS), (COUNTED, COUNTED + AVERAGER)).saves[-1]
    assert distance(one, last_save(trained("local_sgd", 20, 7))) < 1e-7


def test_every_rank_averages_at_every_tenth_step_and_twice_per_save():
    """At a save it averages the weights, then the momentum."""
    steps, saves = 5 * 32, 3  # after epochs 2, 4 and 5
    output = observe.output(stages.of(LESSONS["local_sgd"])[-1], ("5", "2"))
    counts = [int(number) for number in re.findall(r"(\d+) all-reduces of 20 numbers", output)]
    assert counts == [steps // 10 + 2 * saves] * 2


def test_a_killed_worker_changes_nothing_even_between_two_averages(trained, tmp_path):
    """7 epochs have 224 steps, so the restarted run begins 4 steps after an average."""
    env = held_saves(tmp_path / "held")
    with Process("local_sgd", 20, 7, cwd=tmp_path, env=env) as it:
        seen = it.wait_for(r"Epoch 14 \| loss")
        os.kill(it.workers()[1], signal.SIGKILL)
        it.wait_for("Resuming after epoch 7", seen)
        (tmp_path / "held" / "hold").unlink()
        assert it.wait() == 0
    assert same(last_save(trained("local_sgd", 20, 7)), tmp_path / "local_sgd.pt")


def test_a_resumed_run_ends_like_an_undisturbed_one_with_adam_too(changed, tmp_path):
    undisturbed = changed("local_sgd", (4, 2), WITH_ADAM)
    ended = changed("local_sgd", (2, 2), WITH_ADAM).saves[-1]
    assert same(undisturbed.saves[0], ended)
    path = tmp_path / "resumed.pt"
    path.write_bytes(ended.read_bytes())
    resumed = changed("local_sgd", (4, 2, "--checkpoint_path", path), WITH_ADAM)
    assert "Resuming after epoch 2" in resumed.lines
    assert same(undisturbed.saves[-1], path)


def test_every_node_saves_the_same_model(tmp_path):
    """Two nodes with one process each, in two folders."""
    folders = [tmp_path / "node0", tmp_path / "node1"]
    found = nodes.start(folders, 3, 3, lesson="local_sgd", ranks=(0, 1))
    assert nodes.finish(found) == [0, 0]
    assert same(*(folder / "local_sgd.pt" for folder in folders))

"""DiLoCo: it follows the paper's formula, becomes parameter averaging, and resumes exactly."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

import utils
from tests import nodes
from tests.beyond.checkpoints import distance
from tests.beyond.variants import train_variant
from tests.faults import kill_worker, same
from tests.processes import LESSONS, Process, run
from tools.series import observe, stages

OUTER = '{"lr": 0.7, "momentum": 0.9, "nesterov": True}'
EVERY_STEP = ("SYNC_EVERY = 10", "SYNC_EVERY = 1")
EVERY, PER_EPOCH = 10, 32  # steps


def test_with_n_1_and_outer_rate_1_and_no_momentum_it_is_parameter_averaging(tmp_path):
    """Up to rounding: anchor - (anchor - average) is the average itself if the two are close."""
    changes = [EVERY_STEP, (OUTER, '{"lr": 1}')]
    one = train_variant("diloco", changes, 5, 5, folder=tmp_path, name="one")
    other = train_variant("local_sgd", [EVERY_STEP], 5, 5, folder=tmp_path, name="other")
    assert distance(one, other) < 1e-7


def test_the_outer_steps_follow_the_formula_of_the_paper(trained):
    """Two workers and Nesterov's momentum, written out and run in this process."""
    run = trained("diloco", 4, 2)
    assert [run.status, len(run.saves)] == [0, 2]
    for save, (anchor, momentum, average) in zip(run.saves, by_hand(4, 2), strict=True):
        checkpoint = torch.load(save)
        found = checkpoint["outer"]["state"][0]["momentum_buffer"]
        assert (checkpoint["anchor"] - anchor).abs().max() < 1e-5
        assert (found - momentum).abs().max() < 1e-5
        weights = torch.cat([one.flatten() for one in checkpoint["model"].values()])
        assert (weights - average).abs().max() < 1e-5


def by_hand(epochs, save_every, rate=0.7, decay=0.9):
    """The anchor, the momentum and the average of the workers at each save."""
    data, states = utils.MyTrainDataset(), []
    torch.manual_seed(0)
    linear = torch.nn.Linear(20, 1)
    start = torch.cat([linear.weight.flatten(), linear.bias]).detach()
    anchor, momentum = start.double(), torch.zeros(21).double()
    workers, inner = [start.double()] * 2, [torch.zeros(21).double()] * 2
    samplers = [DistributedSampler(data, 2, rank) for rank in range(2)]
    steps = 0
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        shares = [DataLoader(data, 32, sampler=sampler) for sampler in samplers]
        for batches in zip(*shares, strict=True):
            for rank, (source, targets) in enumerate(batches):
                weights = workers[rank].requires_grad_()
                predicted = source.double() @ weights[:20, None] + weights[20]
                [gradient] = torch.autograd.grad(F.mse_loss(predicted, targets.double()), weights)
                inner[rank] = 0.9 * inner[rank] + gradient
                workers[rank] = weights.detach() - 1e-3 * inner[rank]
            steps += 1
            if steps % EVERY == 0:
                delta = anchor - sum(workers) / 2
                momentum = decay * momentum + delta
                anchor = anchor - rate * (delta + decay * momentum)
                workers = [anchor.clone(), anchor.clone()]
        if (epoch + 1) % save_every == 0:
            workers, inner = [sum(workers) / 2] * 2, [sum(inner) / 2] * 2
            states.append((anchor.clone(), momentum.clone(), workers[0].clone()))
    return states


def test_a_resumed_run_ends_like_an_undisturbed_one(trained, tmp_path):
    """2 epochs have 64 steps, so the second run begins 4 steps after an outer one."""
    undisturbed = trained("diloco", 4, 2)
    (tmp_path / "diloco.pt").write_bytes(undisturbed.saves[0].read_bytes())
    resumed = run("diloco", 4, 2, cwd=tmp_path)
    assert (resumed.status, "Resuming after epoch 2" in resumed.lines) == (0, True)
    assert same(undisturbed.saves[-1], tmp_path / "diloco.pt")


def test_two_nodes_have_one_anchor_and_one_outer_momentum_and_begin_from_it(tmp_path):
    """They save after 160 steps, of which the last is an outer one: the weights are the anchor."""
    folders = [tmp_path / "node0", tmp_path / "node1"]
    found = nodes.start(folders, 5, 5, lesson="diloco", ranks=(0, 1))
    assert nodes.finish(found) == [0, 0]
    one, other = (folder / "diloco.pt" for folder in folders)
    assert same(one, other)
    checkpoint = torch.load(one)
    weights = torch.cat([weight.flatten() for weight in checkpoint["model"].values()])
    assert 5 * PER_EPOCH % EVERY == 0 and torch.equal(weights, checkpoint["anchor"])
    assert checkpoint["outer"]["state"][0]["momentum_buffer"].abs().max() > 0


def test_it_sends_the_weights_at_every_tenth_step_and_at_saves_only():
    """The outer optimizer sends nothing more: it gets the average that every rank has."""
    output = observe.output(stages.of(LESSONS["diloco"])[-1], ("3", "1"))
    steps, saves = 3 * PER_EPOCH, 3
    counts = [int(number) for number in re.findall(r"(\d+) all-reduces of 20 numbers", output)]
    assert counts == [steps // EVERY + 2 * saves] * 2  # at a save, the inner momentum too
    assert output.count(f"optimizers made {steps} and {steps // EVERY} steps") == 2


@pytest.mark.soak
def test_four_processes_killed_three_times_end_like_undisturbed_ones(trained, tmp_path):
    undisturbed = trained("diloco", 30, 3, nproc=4)
    with Process("diloco", 30, 3, cwd=tmp_path, nproc=4) as it:
        seen = 0
        for epoch in (4, 11, 20):
            seen = it.wait_for(rf"Epoch +{epoch} \| loss", seen)
            kill_worker(it)
            seen = it.wait_for("Resuming after epoch", seen)
        assert it.wait() == 0
    assert same(undisturbed.saves[-1], tmp_path / "diloco.pt")

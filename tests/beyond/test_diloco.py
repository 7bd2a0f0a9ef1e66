"""DiLoCo's outer steps follow the paper's formula, and send nothing that local_sgd does not."""

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler

import utils
from tests.lessons import train


def test_the_outer_steps_follow_the_formula_of_the_paper(tmp_path):
    """Two workers and Nesterov's momentum, written out."""
    checkpoint = train("diloco", tmp_path, 4)[0]
    anchor, momentum, average = by_hand(4)
    found = checkpoint["outer"]["state"][0]["momentum_buffer"]
    weights = torch.cat([one.flatten() for one in checkpoint["model"].values()])
    pairs = ((checkpoint["anchor"], anchor), (found, momentum), (weights, average))
    assert all((one - other).abs().max() < 1e-5 for one, other in pairs)
    assert (anchor - average).abs().max() > 1e-3  # the last step is no outer one


def by_hand(epochs, rate=0.7, decay=0.9, every=10):
    """The anchor, the momentum and the average of the workers at the end."""
    data = utils.MyTrainDataset()
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
            if steps % every == 0:
                delta = anchor - sum(workers) / 2
                momentum = decay * momentum + delta
                anchor = anchor - rate * (delta + decay * momentum)
                workers = [anchor.clone(), anchor.clone()]
    return anchor, momentum, sum(workers) / 2

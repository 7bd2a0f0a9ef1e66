"""An average of the weights is kept in plain tensors, but the weights are sharded."""

import torch
import two
from torch.distributed.fsdp import fully_shard
from torch.nn import Linear


def main(rank):
    model = Linear(4, 4)
    if not two.FIXED:
        average = [one.detach().clone() for one in model.parameters()]
    fully_shard(model)
    if two.FIXED:
        average = [one.detach().clone() for one in model.parameters()]
    model(torch.rand(8, 4)).sum().backward()
    for mean, weight in zip(average, model.parameters(), strict=True):
        mean.lerp_(weight.detach(), 0.1)
    two.say(rank, "averaged")


if __name__ == "__main__":
    two.run(main)

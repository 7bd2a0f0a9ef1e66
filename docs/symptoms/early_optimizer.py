"""The optimizer was made before the model was sharded."""

import torch
import two
from torch.distributed.fsdp import fully_shard
from torch.nn import Linear


def main(rank):
    model = Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    fully_shard(model)
    if two.FIXED:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.full_tensor().clone()
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    change = (model.weight.full_tensor() - before).abs().max()
    two.say(rank, f"the largest change of a weight is {change:.1f}")


if __name__ == "__main__":
    two.run(main)

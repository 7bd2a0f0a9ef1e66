"""Calling ddp.module(x) bypasses DDP, so gradients are never averaged."""

import torch
import two
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank):
    model = DDP(torch.nn.Linear(1, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        source = torch.full((4, 1), 1.0 + rank)  # other samples on each rank
        optimizer.zero_grad()
        output = model(source) if two.FIXED else model.module(source)
        (output - 5).square().mean().backward()
        optimizer.step()
        two.say(rank, f"step {step}: weight {model.module.weight.item():.4f}")


if __name__ == "__main__":
    two.run(main)

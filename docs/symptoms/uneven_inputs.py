"""Rank 0 has three batches and rank 1 has two: the third backward() hangs."""

import contextlib

import torch
import two
from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank):
    model = DDP(torch.nn.Linear(4, 1))
    with Join([model]) if two.FIXED else contextlib.nullcontext():
        for batch in range(3 - rank):
            model(torch.rand(8, 4)).sum().backward()
            two.say(rank, f"batch {batch} done")
    two.say(rank, "epoch done")


if __name__ == "__main__":
    two.run(main, timeout=2)

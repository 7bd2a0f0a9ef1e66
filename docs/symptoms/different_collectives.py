"""Rank 0 calls a collective that rank 1 does not call, and both hang."""

import torch
import torch.distributed as dist
import two


def main(rank):
    loss = torch.tensor([1.0 + rank])
    if rank == 0 or two.FIXED:  # only rank 0, unless fixed
        dist.all_reduce(loss)
    if rank == 0:
        two.say(rank, f"loss of all ranks: {loss.item()}")
    weights = torch.zeros(1)
    dist.broadcast(weights, src=0)
    two.say(rank, "next epoch")


if __name__ == "__main__":
    two.run(main, timeout=2)

"""Each rank draws its own split, so training sees most test samples."""

import torch
import torch.distributed as dist
import two
from torch.utils.data import random_split


def main(rank):
    generator = torch.Generator().manual_seed(0) if two.FIXED else None
    train, test = random_split(range(1000), [0.9, 0.1], generator)
    splits = [None, None]
    dist.all_gather_object(splits, (set(train.indices), set(test.indices)))
    train_of_rank_1, test_of_rank_0 = splits[1][0], splits[0][1]
    seen = len(test_of_rank_0 & train_of_rank_1)
    if rank == 0:
        two.say(rank, f"rank 1 trains on {seen} of rank 0's "
                      f"{len(test_of_rank_0)} test samples")


if __name__ == "__main__":
    two.run(main)

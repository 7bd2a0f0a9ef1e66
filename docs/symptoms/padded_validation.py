"""The same model has a different validation loss on 1, 2 and 4 processes."""

import torch
import torch.distributed as dist
import two
from torch.utils.data import DistributedSampler

LOSSES = torch.arange(1.0, 10.0)  # nine validation samples; the mean is 5


def main(rank):
    world_size = dist.get_world_size()
    if two.FIXED:
        mine = range(rank, len(LOSSES), world_size)  # no sample twice
    else:
        mine = list(DistributedSampler(LOSSES, shuffle=False))
    totals = torch.tensor([LOSSES[mine].sum(), len(mine)])
    dist.all_reduce(totals)
    loss, samples = totals.tolist()
    if rank == 0:
        two.say(rank, f"world size {world_size}: validation loss "
                      f"{loss / samples:.3f} over {samples:.0f} samples")


if __name__ == "__main__":
    for world_size in (1, 2, 4):
        two.run(main, world_size)

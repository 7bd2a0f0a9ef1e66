"""A loader that has a sampler must not also be told to shuffle."""

import two
from torch.utils.data import DataLoader, DistributedSampler


def main(rank):
    sampler = DistributedSampler(range(8))
    loader = DataLoader(range(8), 4, shuffle=not two.FIXED, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        two.say(rank, f"epoch {epoch}: {next(iter(loader)).tolist()}")


if __name__ == "__main__":
    two.run(main)

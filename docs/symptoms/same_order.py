"""Without set_epoch, DistributedSampler shuffles every epoch the same way."""

import two
from torch.utils.data import DataLoader, DistributedSampler

DATA = range(100)


def main(rank):
    sampler = DistributedSampler(DATA)  # shuffle=True is the default
    loader = DataLoader(DATA, batch_size=6, sampler=sampler)
    for epoch in range(3):
        if two.FIXED:
            sampler.set_epoch(epoch)
        first = next(iter(loader)).tolist()
        two.say(rank, f"epoch {epoch} begins with samples {first}")


if __name__ == "__main__":
    two.run(main)

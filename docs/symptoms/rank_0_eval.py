"""Only rank 0 evaluates, but DDP's forward() calls a collective."""

import torch
import two
from torch.nn import BatchNorm1d, Linear, Sequential
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank):
    model = DDP(Sequential(Linear(4, 4), BatchNorm1d(4)))
    for epoch in range(2):
        model.train()
        model(torch.rand(8, 4)).sum().backward()
        if rank == 0 or two.FIXED:
            model.eval()
            with torch.no_grad():
                model(torch.rand(8, 4))
        two.say(rank, f"epoch {epoch} done")


if __name__ == "__main__":
    two.run(main, timeout=2)

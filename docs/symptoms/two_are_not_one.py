"""One epoch on one process and on two gives different weights."""

import torch
import torch.distributed as dist
import two
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES = torch.linspace(-1, 1, 256).unsqueeze(1)
DATA = TensorDataset(FEATURES, 3 * FEATURES)


def main(rank):
    torch.manual_seed(0)  # the same initial weights
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    world_size = dist.get_world_size()
    batch = 32 // world_size if two.FIXED else 32
    loader = DataLoader(DATA, batch, sampler=DistributedSampler(DATA))
    for source, targets in loader:
        optimizer.zero_grad()
        mse_loss(model(source), targets).backward()
        optimizer.step()
    if rank == 0:
        weight = model.module.weight.item()
        two.say(rank, f"{world_size} x batch size {batch}: "
                      f"{len(loader)} steps, weight {weight:.3f}")


if __name__ == "__main__":
    two.run(main, world_size=1)
    two.run(main, world_size=2)

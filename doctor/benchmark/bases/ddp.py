import os

import torch
import torch._dynamo  # DDP imports it: once, before the fork
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PROCESSES, EPOCHS, BATCH = 2, 3, 4


class Points(Dataset):
    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(64, 6, generator=generator)
        self.y = self.x[:, :1] * self.x[:, 1:2]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = Net()
    torch.manual_seed(1 + rank)
    data = Points()
    sampler = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=sampler)
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach() / world_size
        dist.all_reduce(mean)
        if rank == 0:
            print(f"epoch {epoch}: loss {mean.item():.4f}")


def start(rank):
    method = f"file://{os.path.abspath('store')}"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=PROCESSES)
    main()
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(start, nprocs=PROCESSES, start_method="fork")

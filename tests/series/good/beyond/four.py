"""Count with more precision.

    python beyond/four.py 50 10

Fifty epochs will do.
"""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, DistributedSampler

import utils


def ddp_setup(rank, world_size):
    """Join the process group."""
    store = dist.FileStore("store", world_size)
    dist.init_process_group(store=store, rank=rank, world_size=world_size)


class Trainer:
    def __init__(self, model, train_data):
        self.model = model
        self.train_data = train_data

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        total = torch.zeros(1, dtype=torch.float64)
        for batch in self.train_data:
            # Summed on the device, without waiting for it.
            total += self.model(batch).sum()
        dist.all_reduce(total)
        if dist.get_rank() != 0:
            return
        utils.report(epoch, total)

    def train(self, total_epochs):
        for epoch in range(total_epochs):
            self._run_epoch(epoch)


def prepare_dataloader(dataset, batch_size):
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    train_data = prepare_dataloader(utils.Numbers(), args.batch_size)
    trainer = Trainer(torch.nn.Identity(), train_data)
    trainer.train(args.total_epochs)


def worker(rank, world_size, args):
    ddp_setup(rank, world_size)
    try:
        main(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    args = utils.parse_args(__doc__)
    mp.spawn(worker, args=(2, args), nprocs=2)

"""Count on, whatever happens.

    OMP_NUM_THREADS=1 torchrun --standalone beyond/three.py 50 10

Fifty epochs will do.
"""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

import utils


def ddp_setup():
    """Join the process group."""
    dist.init_process_group()


class Trainer:
    def __init__(self, model, train_data):
        self.model = model
        self.train_data = train_data
        self.epochs_run = 0
        self._load_checkpoint()

    def _run_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for batch in self.train_data:
            # Summed on the device, without waiting for it.
            total += self.model(batch).sum()
        dist.all_reduce(total)
        if dist.get_rank() != 0:
            return
        utils.report(epoch, total)

    def _load_checkpoint(self):
        self.epochs_run = torch.load("three.pt")["epochs_run"]

    def train(self, total_epochs):
        for epoch in range(self.epochs_run, total_epochs):
            self._run_epoch(epoch)


def prepare_dataloader(dataset, batch_size):
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    train_data = prepare_dataloader(utils.Numbers(), args.batch_size)
    trainer = Trainer(torch.nn.Identity(), train_data)
    trainer.train(args.total_epochs)


def worker(args):
    ddp_setup()
    try:
        main(args)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    args = utils.parse_args(__doc__)
    worker(args)

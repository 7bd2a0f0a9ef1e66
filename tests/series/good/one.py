"""Count on one device.

    python one.py 50 10

Fifty epochs will do.
"""

import torch
from torch.utils.data import DataLoader, RandomSampler

import utils


class Trainer:
    def __init__(self, model, train_data):
        self.model = model
        self.train_data = train_data

    def _run_epoch(self, epoch):
        self.train_data.sampler.generator.manual_seed(epoch)
        total = torch.zeros(1)
        for batch in self.train_data:
            # Summed on the device, without waiting for it.
            total += self.model(batch).sum()
        utils.report(epoch, total)

    def train(self, total_epochs):
        for epoch in range(total_epochs):
            self._run_epoch(epoch)


def prepare_dataloader(dataset, batch_size):
    sampler = RandomSampler(dataset, generator=torch.Generator())
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    train_data = prepare_dataloader(utils.Numbers(), args.batch_size)
    trainer = Trainer(torch.nn.Identity(), train_data)
    trainer.train(args.total_epochs)


if __name__ == "__main__":
    args = utils.parse_args(__doc__)
    main(args)

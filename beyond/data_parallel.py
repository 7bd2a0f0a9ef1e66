"""Train on several devices in one process, as torch.nn.DataParallel does.

    python -m beyond.data_parallel 50 10
"""

import time
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import torch
import torch.nn.functional as F
from torch.func import functional_call
from torch.utils.data import DataLoader, RandomSampler

import utils


def data_parallel(module, devices, batch):
    chunks = batch.chunk(len(devices))
    parts = list(map(torch.Tensor.to, chunks, devices))  # scatter
    weights = dict(module.named_parameters())
    replicas = [  # replicate: their gradients add up in the originals
        {name: w.to(d) for name, w in weights.items()} for d in devices]
    # One module per thread: functional_call changes it while it runs.
    same = {id(w): w for w in module.parameters()}  # not copied
    modules = [deepcopy(module, {**same}) for _ in devices]
    with ThreadPoolExecutor() as threads:  # parallel_apply
        outputs = list(threads.map(functional_call, modules, replicas, parts))
    return torch.cat([out.to(batch.device) for out in outputs])  # gather


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, path):
        self.device = utils.device()
        self.model = model.to(self.device)
        gpus = range(utils.num_gpus())
        devices = [torch.device(self.device.type, n) for n in gpus]
        self.devices = devices or [self.device] * 2
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.path = path

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        outputs = data_parallel(self.model, self.devices, source)
        loss = F.mse_loss(outputs, targets)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _run_epoch(self, epoch):
        start = time.perf_counter()
        self.train_data.sampler.generator.manual_seed(epoch)  # reproducible
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in self.train_data:
            source, targets = source.to(self.device), targets.to(self.device)
            loss = self._run_batch(source, targets)
            # Summed on the device: .item() would wait for it at every step.
            totals[0] += loss * len(source)
            totals[1] += len(source)
        utils.report(epoch, totals, start)

    def _save_checkpoint(self, epoch):
        checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_run": epoch + 1,
        }
        utils.save_checkpoint(checkpoint, self.path)

    def train(self, total_epochs):
        for epoch in range(total_epochs):
            self._run_epoch(epoch)
            if (epoch + 1) % self.save_every == 0 or epoch + 1 == total_epochs:
                self._save_checkpoint(epoch)


def load_train_objs():
    dataset = utils.MyTrainDataset()
    torch.manual_seed(0)  # the same initial weights in every run and script
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return dataset, model, optimizer


def prepare_dataloader(dataset, batch_size):
    sampler = RandomSampler(dataset, generator=torch.Generator())
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, args.batch_size)
    trainer = Trainer(
        model, train_data, optimizer, args.save_every, args.checkpoint_path)
    trainer.train(args.total_epochs)


if __name__ == "__main__":
    args = utils.parse_args(__doc__)
    main(args)

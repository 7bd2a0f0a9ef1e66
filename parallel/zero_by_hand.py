r"""Divide the momentum, gradients and weights among the processes.

    torchrun --standalone --nproc_per_node=2 \
    -m parallel.zero_by_hand 50 10
"""

import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, DistributedSampler

import utils


def ddp_setup():
    """Join the process group: one process per device."""
    device_id = utils.set_device(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(utils.device())
    dist.init_process_group(backend, device_id=device_id)


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, path):
        self.device = utils.device()
        self.model = model.to(self.device)
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.path = path
        self.weights = parameters_to_vector(self.model.parameters()).detach()
        vector_to_parameters(self.weights, self.model.parameters())  # views
        self.shard = self._shards(self.weights)[dist.get_rank()]
        optimizer.param_groups[0]["params"] = [self.shard]
        self._load_checkpoint()

    def _shards(self, whole):
        """One part per rank, padded to equal sizes."""
        size = dist.get_world_size()
        padded = F.pad(whole, (0, -len(whole) % size))
        return [shard.clone() for shard in padded.chunk(size)]

    def _whole(self, shard):
        """The shards of all ranks: every rank must call this."""
        shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, shard)
        return torch.cat(shards)[: len(self.weights)]

    def _gather(self):
        """Give the weights their memory back, and their values."""
        self.weights.untyped_storage().resize_(self.weights.nbytes)
        self.weights.copy_(self._whole(self.shard))

    def _run_batch(self, source, targets):
        self._gather()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        self.weights.untyped_storage().resize_(0)  # frees their memory
        grads = parameters_to_vector(w.grad for w in self.model.parameters())
        self.model.zero_grad()
        self.shard.grad = torch.empty_like(self.shard)
        dist.reduce_scatter(self.shard.grad, self._shards(grads))
        self.shard.grad /= dist.get_world_size()
        self.optimizer.step()
        return loss.detach()

    def _run_epoch(self, epoch):
        start = time.perf_counter()
        self.train_data.sampler.set_epoch(epoch)  # or the order never changes
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in self.train_data:
            source, targets = source.to(self.device), targets.to(self.device)
            loss = self._run_batch(source, targets)
            # Summed on the device: .item() would wait for it at every step.
            totals[0] += loss * len(source)
            totals[1] += len(source)
        dist.all_reduce(totals)  # every rank must call this, or the others hang
        if dist.get_rank() != 0:
            return
        utils.report(epoch, totals, start)

    def _save_checkpoint(self, epoch):
        self._gather()
        state = self.optimizer.state[self.shard]
        momentum = self._whole(state["momentum_buffer"])
        if dist.get_node_local_rank() != 0:
            return
        checkpoint = {
            "model": self.model.state_dict(),
            "optimizer": momentum,
            "epochs_run": epoch + 1,
        }
        utils.save_checkpoint(checkpoint, self.path)

    def _load_checkpoint(self):
        checkpoint = utils.read_checkpoint(self.path)
        # Nodes share no disk: all take the newest checkpoint that any node has.
        progress = [None] * dist.get_world_size()
        dist.all_gather_object(progress, checkpoint["epochs_run"])
        newest = [checkpoint]  # broadcast whole: through GPU memory under NCCL
        dist.broadcast_object_list(newest, src=progress.index(max(progress)))
        checkpoint = newest[0]
        self.epochs_run = checkpoint["epochs_run"]
        if self.epochs_run > 0:
            self.model.load_state_dict(checkpoint["model"])
            self.shard.copy_(self._shards(self.weights)[dist.get_rank()])
            momentum = self._shards(checkpoint["optimizer"])[dist.get_rank()]
            self.optimizer.state[self.shard]["momentum_buffer"] = momentum

    def train(self, total_epochs):
        if dist.get_rank() == 0:
            utils.report_resume(self.epochs_run, total_epochs, self.path)
        for epoch in range(self.epochs_run, total_epochs):
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
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, args.batch_size)
    trainer = Trainer(
        model, train_data, optimizer, args.save_every, args.checkpoint_path)
    trainer.train(args.total_epochs)


@record
def worker(args):
    ddp_setup()
    main(args)
    dist.barrier()  # wait for the last save
    dist.destroy_process_group()


if __name__ == "__main__":
    args = utils.parse_args(__doc__, resume=True)
    worker(args)

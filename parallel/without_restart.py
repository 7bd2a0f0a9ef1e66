r"""Train in groups, one on each node: when a group is lost, the others go on.

Start torchft_lighthouse --min_replicas 1 on node1. Then run this on every node,
with its number as REPLICA_GROUP_ID, from 0:

    TORCHFT_LIGHTHOUSE=http://node1:29510 NUM_REPLICA_GROUPS=2 \
    REPLICA_GROUP_ID=0 torchrun --standalone --nproc_per_node=2 \
    -m parallel.without_restart 50 10
"""

import os
import time
from datetime import timedelta
from itertools import islice

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchft
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

import utils


def ddp_setup():
    """Join the process group: one process per device."""
    device_id = utils.set_device(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(utils.device())
    dist.init_process_group(backend, device_id=device_id)


class Trainer:
    def __init__(self, model, train_data, optimizer, save_every, path):
        self.device = utils.device()
        self.model = DDP(model.to(self.device))
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = save_every
        self.path = path
        self.manager = make_manager()
        for part in self.model.module, optimizer:
            self.manager.register_state_dict_fn(
                type(part).__name__, part.load_state_dict, part.state_dict)
        self._load_checkpoint()
        self.manager.start_quorum()  # whoever is behind takes the state
        self.epochs_run = self.manager.current_step() // len(train_data)

    def _run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = F.mse_loss(self.model(source), targets)
        loss.backward()
        for parameter in self.model.parameters():  # DDP averages in the group
            self.manager.allreduce(parameter.grad).wait()
        if not self.manager.should_commit():  # a group was lost
            self.manager.start_quorum()
            return self._run_batch(source, targets)  # with those that are left
        self.optimizer.step()
        self.manager.start_quorum()  # which groups make the next step?
        return loss.detach()

    def _run_epoch(self, epoch):
        start = time.perf_counter()
        self.train_data.sampler.set_epoch(epoch)  # or the order never changes
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        step = self.manager.current_step()
        done = step % len(self.train_data)
        for source, targets in islice(self.train_data, done, None):
            source, targets = source.to(self.device), targets.to(self.device)
            loss = self._run_batch(source, targets)
            step += 1
            if step != self.manager.current_step():
                raise RuntimeError("the others left this group behind")
            # Summed on the device: .item() would wait for it at every step.
            totals[0] += loss * len(source)
            totals[1] += len(source)
        dist.all_reduce(totals)  # every rank must call this, or the others hang
        if dist.get_rank() != 0:
            return
        utils.report(epoch, totals, start)

    def _save_checkpoint(self, epoch):
        if dist.get_node_local_rank() != 0:
            return
        checkpoint = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_run": epoch + 1,
        }
        utils.save_checkpoint(checkpoint, self.path)

    def _load_checkpoint(self):
        checkpoint = utils.read_checkpoint(self.path)
        self.epochs_run = checkpoint["epochs_run"]
        if self.epochs_run > 0:
            self.model.module.load_state_dict(checkpoint["model"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
        step = self.epochs_run * len(self.train_data)
        self.manager.load_state_dict({"step": step, "batches_committed": 0})

    def train(self, total_epochs):
        if dist.get_rank() == 0:
            utils.report_resume(self.epochs_run, total_epochs, self.path)
        for epoch in range(self.epochs_run, total_epochs):
            self._run_epoch(epoch)
            if (epoch + 1) % self.save_every == 0 or epoch + 1 == total_epochs:
                self._save_checkpoint(epoch)


def make_manager():
    """Join the groups: start_quorum finds those that are there."""
    on_gpu = utils.device().type == "cuda"
    timeout = timedelta(seconds=10)  # of an all-reduce among the groups
    group = torchft.ProcessGroupNCCL if on_gpu else torchft.ProcessGroupGloo
    return torchft.Manager(
        group(timeout), None, None, min_replica_size=1, use_async_quorum=False,
        timeout=timeout, replica_id=os.environ["REPLICA_GROUP_ID"])


def load_train_objs():
    dataset = utils.MyTrainDataset()
    torch.manual_seed(0)  # the same initial weights in every run and script
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return dataset, model, optimizer


def prepare_dataloader(dataset, batch_size):
    group = int(os.environ["REPLICA_GROUP_ID"])
    groups = int(os.environ["NUM_REPLICA_GROUPS"])
    sampler = torchft.DistributedSampler(dataset, group, groups)
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
    for name in "TORCHFT_LIGHTHOUSE", "REPLICA_GROUP_ID", "NUM_REPLICA_GROUPS":
        if name not in os.environ:
            raise utils.UserError(f"no {name} in the environment: see --help")
    worker(args)

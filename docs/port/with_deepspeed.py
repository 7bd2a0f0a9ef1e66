r"""multinode.py with DeepSpeed's ZeRO, stage 1, 2 or 3. It does not resume.

    PYTHONPATH=. OMP_NUM_THREADS=1 \
    torchrun --standalone --nproc_per_node=2 \
    docs/port/with_deepspeed.py 50 10 --stage 3
"""

import argparse
import os
import time

import deepspeed
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, DistributedSampler

import utils


def ddp_setup():
    """Join the process group: one process per device."""
    utils.set_device(int(os.environ["LOCAL_RANK"]))
    # On a CPU, DeepSpeed would compile an op now, for about a minute.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()


class Trainer:
    def __init__(
            self, config, model, train_data, optimizer, save_every, path):
        self.device = utils.device()
        self.model, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=config)
        self.train_data = train_data
        self.save_every = save_every
        self.path = path

    def _run_batch(self, source, targets):
        loss = F.mse_loss(self.model(source), targets)
        self.model.backward(loss)
        self.model.step()  # and zero_grad
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
        module = self.model.module
        # Stage 3 shards the weights: every rank must help to gather them.
        with deepspeed.zero.GatheredParameters(list(module.parameters())):
            if dist.get_node_local_rank() != 0:
                return
            checkpoint = {
                "model": module.state_dict(),
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
    sampler = DistributedSampler(dataset)
    return DataLoader(dataset, batch_size, sampler=sampler)


def main(args):
    dataset, model, optimizer = load_train_objs()
    train_data = prepare_dataloader(dataset, args.batch_size)
    config = {
        "train_micro_batch_size_per_gpu": args.batch_size,
        "gradient_clipping": 0.0,  # the default is 1.0
        "zero_optimization": {"stage": args.stage},
        "zero_allow_untested_optimizer": True,  # SGD
    }
    trainer = Trainer(
        config, model, train_data, optimizer, args.save_every,
        args.checkpoint_path)
    trainer.train(args.total_epochs)


@record
def worker(args):
    ddp_setup()
    main(args)
    dist.barrier()  # wait for the last save
    dist.destroy_process_group()


if __name__ == "__main__":
    stage = argparse.ArgumentParser(add_help=False)
    stage.add_argument("--stage", type=int, default=1, choices=(1, 2, 3))
    args = utils.parse_args(__doc__, parents=[stage])
    worker(args)
    os._exit(0)  # or gloo may abort at exit, since DeepSpeed keeps tensors

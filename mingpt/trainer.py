r"""Train a GPT on text, and lose nothing when it is stopped.

Paste this:

    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
    torchrun --standalone --nproc_per_node=2 --max-restarts=3 -m mingpt.main
"""

import math
import os
import signal
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # if imported later, it keeps the group
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

import utils
from mingpt import checkpoints, data
from mingpt.metrics import Metrics


def ddp_setup():
    """Join the process group: one process for each device."""
    device_id = utils.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(device_id=device_id)


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.rank = dist.get_rank()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = utils.device()
        self.model = DDP(model.to(self.device), gradient_as_bucket_view=True)
        if args.compile:
            self.model.compile()
        self.train_data = train_data
        self.optimizer = optimizer
        self.path = args.checkpoint_path
        self.args = args
        fp16 = args.precision == "fp16"  # its small gradients would be 0
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=fp16)
        self.control = dist.new_group(backend="gloo")  # no GPU waits for it
        self.stop = torch.tensor(0)
        # It outlives the trainer. With self in it, the group would as well.
        signal.signal(signal.SIGTERM, lambda *_, it=self.stop: it.fill_(1))
        torch.manual_seed(args.seed + self.rank)  # each drops other units
        self.file = checkpoints.File(args, model.config, train_data.dataset)
        self._load_checkpoint()
        self.metrics = Metrics(args, model, self.device, self.steps_run)

    def _loss(self, source, targets):
        """Summed over the tokens: sums add up, at any number of processes."""
        with torch.autocast(self.device.type, **self.args.autocast):
            return self.model(source, targets)

    def _run_batch(self, batches):
        self.optimizer.zero_grad()
        mean = torch.zeros((), device=self.device)
        count = self.train_data.sampler.accumulation
        for remaining in reversed(range(count)):
            source, targets = data.to_device(next(batches), self.device)
            # DDP decides in forward whether backward sends: both are inside.
            with self.model.no_sync() if remaining else nullcontext():
                loss = self._loss(source, targets) / targets.numel()
                self.scaler.scale(loss / count).backward()
            mean += loss.detach() / count
        self.scaler.unscale_(self.optimizer)  # before their norm is taken
        clip_grad_norm_(self.model.parameters(), self.args.grad_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return mean

    @torch.no_grad()
    def _validate(self, step):
        self.model.eval()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in data.validation(self.train_data, self.args):
            source, targets = source.to(self.device), targets.to(self.device)
            totals[0] += self._loss(source, targets)
            totals[1] += (targets != data.PADDING).sum()
        self.model.train()
        dist.all_reduce(totals)  # by every rank, or the others wait for it
        if self.rank != 0:
            return
        self.metrics.validated(step, totals)

    def _save_checkpoint(self, step):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, checkpoints.rng_state(self.device))
        if self.local_rank != 0:
            return
        checkpoint = {
            "model": self.model.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": states,
            "steps_run": step + 1,
        }
        self.file.save(checkpoint)

    def _load_checkpoint(self):
        model = self.model.module
        checkpoint = self.file.read()
        # Nodes share no disk: all take the newest checkpoint that any holds.
        # It travels whole (on GPUs, through their memory): leave room for it.
        progress = [None] * dist.get_world_size()
        dist.all_gather_object(progress, checkpoint["steps_run"])
        newest = [checkpoint]
        dist.broadcast_object_list(newest, src=progress.index(max(progress)))
        checkpoint = newest[0]
        self.steps_run = checkpoint["steps_run"]
        if self.steps_run > 0:
            model.load_state_dict(checkpoint["model"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.scaler.load_state_dict(checkpoint["scaler"])
            checkpoints.set_rng_state(checkpoint["rng"], self.rank, self.device)

    def _learning_rate(self, step):
        """A linear warm-up, then half a cosine: Loshchilov & Hutter, 2017."""
        low, high = self.args.min_learning_rate, self.args.learning_rate
        warmup, total = self.args.warmup_steps, self.args.total_steps
        if step < warmup:
            return high * (step + 1) / warmup
        angle = math.pi * (step - warmup) / (total - warmup)
        return low + (high - low) * (1 + math.cos(angle)) / 2

    def train(self, total_steps):
        if self.rank == 0:
            utils.report_resume(self.steps_run, total_steps, self.path, "step")
        self.train_data.sampler.set_step(self.steps_run)
        batches = self.metrics.timed(self.train_data)
        for step in range(self.steps_run, total_steps):
            # One is asked to stop, all do. This travels beside the step.
            stop = self.stop.clone()
            agreed = dist.all_reduce(stop, group=self.control, async_op=True)
            for group in self.optimizer.param_groups:
                group["lr"] = self._learning_rate(step)
            loss = self._run_batch(batches)
            agreed.wait()
            last = step + 1 == total_steps
            if (step + 1) % self.args.log_every == 0 or last:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
                self.metrics.trained(step, loss)
            if last or (not stop and (step + 1) % self.args.eval_every == 0):
                self._validate(step)
            if (step + 1) % (self.args.save_every // 2) == 0 or last or stop:
                self._save_checkpoint(step)
            if stop:
                self.file.wait()
                dist.barrier()  # torchrun ends the others when the first goes
                raise SystemExit(self.args.stopped_status)
        self.file.wait()


def load_train_objs(args):
    dataset = data.load(args)
    torch.manual_seed(args.seed)  # the same initial weights on every rank
    model = args.build(dataset.vocab_size)
    groups = model.parameter_groups(args.weight_decay)
    optimizer = torch.optim.AdamW(groups, **args.adamw)
    return dataset, model, optimizer


def prepare_dataloader(dataset, args):
    sampler = data.StepSampler(dataset, args)
    # Of its own, or it would take from the random state that is saved.
    draws = torch.Generator()
    return DataLoader(dataset, None, sampler=sampler, generator=draws)


def main(args):
    dataset, model, optimizer = load_train_objs(args)
    train_data = prepare_dataloader(dataset, args)
    trainer = Trainer(model, train_data, optimizer, args)
    trainer.train(args.total_steps)


@record
def worker(args):
    ddp_setup()
    try:
        main(args)
        dist.barrier()  # until all is saved; a rank that crashed never comes
    finally:
        utils.unwind()  # lets go of DDP before its group
        dist.destroy_process_group()

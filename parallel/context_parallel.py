"""Train a GPT on sequences of which each process has a slice.

Paste this:

    torchrun --standalone --nproc_per_node=2 -m parallel.context_parallel
"""

import math
import os
import signal
import sys
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.attention.bias import causal_lower_right
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

import mingpt.main
import utils
from guard import UserError
from mingpt import checkpoints, data
from mingpt.metrics import Metrics


def ddp_setup():
    """Join the process group: one process per device."""
    device_id = utils.set_device(int(os.environ["LOCAL_RANK"]))
    backend = dist.get_default_backend_for_device(utils.device())
    dist.init_process_group(backend, device_id=device_id)


def own_slice(batch):
    """Of each sequence, the tokens of this rank."""
    size, rank = dist.get_world_size(), dist.get_rank()
    return [part.chunk(size, dim=1)[rank] for part in batch]


class AllGather(torch.autograd.Function):
    """The slices of all ranks, one after the other."""

    @staticmethod
    def forward(context, own):
        slices = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(slices, own)
        return torch.cat(slices, dim=3)

    @staticmethod
    def backward(context, gradient):
        slices = torch.stack(gradient.chunk(dist.get_world_size(), dim=3))
        own = torch.empty_like(slices[0])
        dist.reduce_scatter(own, [*slices])
        return own


def attend(self, x, past=None):
    """The attention of the model, to the tokens of all ranks."""
    parts = self.c_attn(x).unflatten(-1, (3, self.n_head, -1)).transpose(1, 3)
    query, *pair = parts.unbind(2)  # each is [batch, head, time, size]
    end = (dist.get_rank() + 1) * x.size(1)  # of the tokens it may see
    key, value = AllGather.apply(torch.stack(pair))[:, :, :, :end]
    mask = causal_lower_right(x.size(1), end)  # its last token sees them all
    y = F.scaled_dot_product_attention(
        query, key, value, mask, self.dropout * self.training)
    y = self.c_proj(y.transpose(1, 2).flatten(2))
    return F.dropout(y, self.dropout, self.training)


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.device = utils.device()
        self.model = DDP(
            model.to(self.device),
            bucket_cap_mb=25,  # unless it is set, the first bucket has 1 MB
            gradient_as_bucket_view=True,  # no copy back from buckets
        )
        if args.compile:
            # Cut the graph at buckets only where sending overlaps.
            split = dist.get_world_size() > 1 and train_data.accumulation == 1
            torch._dynamo.config.optimize_ddp = split
            self.model.compile()
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = args.save_every
        self.path = args.checkpoint_path
        self.args = args
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.fp16)
        torch.manual_seed(args.seed + dist.get_rank())  # own dropout
        self.file = checkpoints.CheckpointFile(args, model, train_data)
        self._load_checkpoint()
        self.metrics = Metrics(args, model, train_data, self.steps_run)

    def _loss(self, source, targets):
        """Summed over the tokens: sums add up, at any number of processes."""
        with torch.autocast(self.device.type, **self.args.autocast):
            return self.model(source, targets)

    def _run_batch(self, source, targets, is_last):
        source, targets = own_slice((source, targets))
        # In forward, DDP decides whether backward sends: both are inside.
        with nullcontext() if is_last else self.model.no_sync():
            loss = self._loss(source, targets) / targets.numel()
            self.scaler.scale(loss / self.train_data.accumulation).backward()
        return loss.detach()

    def _run_step(self, step):
        self.optimizer.zero_grad()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        batches = self.train_data[step]
        for number, (source, targets) in enumerate(batches, 1):
            loss = self._run_batch(source, targets, number == len(batches))
            # Summed on the device: .item() would wait for it at every step.
            totals[0] += loss * len(source)
            totals[1] += len(source)
        self.scaler.unscale_(self.optimizer)  # before their norm is taken
        clip_grad_norm_(self.model.parameters(), self.args.grad_clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not self.metrics.is_due(step):
            return
        dist.all_reduce(totals)  # every rank must call this, or the others hang
        if dist.get_rank() != 0:
            return
        self.metrics.trained(step, totals)

    @torch.no_grad()
    def _validate(self, step):
        self.model.eval()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in data.validation(self.train_data, self.args):
            source, targets = own_slice((source, targets))
            totals[0] += self._loss(source, targets)
            totals[1] += (targets != data.PADDING).sum()
        self.model.train()
        dist.all_reduce(totals)  # every rank must call this, or the others hang
        if dist.get_rank() != 0:
            return
        self.metrics.validated(step, totals)

    def _save_checkpoint(self, step):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, checkpoints.rng_state(self.device))
        if dist.get_node_local_rank() != 0:
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
        checkpoint = self.file.read()
        # Nodes share no disk: all take the newest checkpoint that any node has.
        progress = [None] * dist.get_world_size()
        dist.all_gather_object(progress, checkpoint["steps_run"])
        newest = [checkpoint]  # broadcast whole: through GPU memory under NCCL
        dist.broadcast_object_list(newest, src=progress.index(max(progress)))
        checkpoint = newest[0]
        self.steps_run = checkpoint["steps_run"]
        if self.steps_run > 0:
            # DDP sorts its buckets by this, and sums round by their order.
            self._run_batch(*self.train_data[0][0], is_last=True)
            self.model.module.load_state_dict(checkpoint["model"])
            self.optimizer.load_state_dict(checkpoint["optimizer"])
            self.scaler.load_state_dict(checkpoint["scaler"])
            checkpoints.set_rng_state(checkpoint["rng"], self.device)

    def _learning_rate(self, step):
        """A linear warm-up, then half a cosine: Loshchilov & Hutter, 2017."""
        low, high = self.args.min_learning_rate, self.args.learning_rate
        warmup, total = self.args.warmup_steps, self.args.total_steps
        if step < warmup:
            return high * (step + 1) / warmup
        angle = math.pi * (step - warmup) / (total - warmup)
        return low + (high - low) * (1 + math.cos(angle)) / 2

    def train(self, total_steps):
        if dist.get_rank() == 0:
            utils.report_resume(self.steps_run, total_steps, self.path, "step")
        control = dist.new_group(backend="gloo")  # no GPU waits for it
        asked = torch.tensor(0)
        signal.signal(signal.SIGTERM, lambda *_: asked.fill_(1))
        for step in range(self.steps_run, total_steps):
            # If any rank got SIGTERM, all stop. This overlaps the step.
            stop = asked.clone()
            agreed = dist.all_reduce(stop, group=control, async_op=True)
            for group in self.optimizer.param_groups:
                group["lr"] = self._learning_rate(step)
            self._run_step(step)
            agreed.wait()
            last = step + 1 == total_steps
            if last or (not stop and (step + 1) % self.args.eval_every == 0):
                self._validate(step)
            if (step + 1) % self.save_every == 0 or last or stop:
                self._save_checkpoint(step)
            if stop:
                self.file.wait()
                dist.barrier()  # torchrun ends the others when the first goes
                os._exit(self.args.stopped_status)
        self.file.wait()


def load_train_objs(args):
    dataset = data.load(args)
    if args.deterministic:
        # cuBLAS reads this once, before its first product.
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)  # the same initial weights on every rank
    model = args.build(dataset.vocab_size)
    model.transformer.wpe.register_forward_pre_hook(
        lambda _, args: args[0] + dist.get_rank() * len(args[0]))
    for block in model.transformer.h:
        block.attn.forward = partial(attend, block.attn)
    groups = model.parameter_groups(args.weight_decay)
    optimizer = torch.optim.AdamW(groups, **args.adamw)
    return dataset, model, optimizer


def prepare_dataloader(dataset, args):
    size = dist.get_world_size()
    if args.block_size % size:
        nearest = max(1, round(args.block_size / size)) * size
        raise UserError(
            f"block_size is {args.block_size}, but must be a multiple of the "
            f"number of processes, {size}: the nearest is {nearest}")
    alone, _ = dist.new_subgroups(1)  # it shares its batch with no other
    return data.StepLoader(dataset, args, alone)


def main(args):
    dataset, model, optimizer = load_train_objs(args)
    train_data = prepare_dataloader(dataset, args)
    trainer = Trainer(model, train_data, optimizer, args)
    trainer.train(args.total_steps)


@record
def worker(args):
    ddp_setup()
    main(args)
    dist.barrier()  # wait for the last save
    dist.destroy_process_group()


if __name__ == "__main__":
    mingpt.main.main(sys.modules[__name__])

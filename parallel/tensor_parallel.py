"""Train a GPT of which each process computes a part of every layer.

Paste this:

    torchrun --standalone --nproc_per_node=2 -m parallel.tensor_parallel
"""

import math
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor import parallel as tp
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.placement_types import Replicate, Shard
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


def whole(part):
    """`part` with whole tensors for shards, on the ranks that save."""
    if isinstance(part, DTensor):
        tensor = part.full_tensor()  # every rank must call this, and sends
        return tensor.cpu() if dist.get_node_local_rank() == 0 else None
    if isinstance(part, dict):
        return {name: whole(value) for name, value in part.items()}
    return part


def shards(part, like):
    """`part` with this rank's shards, as `like` has, in place of tensors."""
    if isinstance(like, DTensor):
        return distribute_tensor(
            part, like.device_mesh, like.placements, src_data_rank=None)
    if isinstance(like, dict):
        return {name: shards(part[name], like[name]) for name in part}
    return part


def device_mesh():
    """A row: its ranks share the layers, and train on the same batches."""
    shape = 1, dist.get_world_size()
    names = "data", "model"
    return init_device_mesh(utils.device().type, shape, mesh_dim_names=names)


def split(model, mesh):
    """Give each rank its share of the heads and of the MLP's units."""
    heads = model.config.n_head
    if heads % mesh.size():
        raise UserError(f"{mesh.size()} processes cannot share {heads} heads")
    tokens = model.config.block_size
    if tokens % mesh.size():
        raise UserError(f"{mesh.size()} processes cannot share {tokens} tokens")
    state = swap(model.state_dict(), qkv(model), 3, mesh.size())
    model.load_state_dict(state)
    for block in model.transformer.h:
        block.attn.n_head //= mesh.size()
        tp.parallelize_module(block, mesh, {
            "ln_1": tp.SequenceParallel(use_local_output=True),
            "attn.c_attn": tp.ColwiseParallel(input_layouts=Shard(1)),
            "attn.c_proj": tp.RowwiseParallel(output_layouts=Shard(1)),
            "ln_2": tp.SequenceParallel(use_local_output=True),
            "mlp.c_fc": tp.ColwiseParallel(input_layouts=Shard(1)),
            "mlp.c_proj": tp.RowwiseParallel(output_layouts=Shard(1)),
        })
    tp.parallelize_module(model.transformer.h[0], mesh, tp.PrepareModuleInput(
        input_layouts=(Replicate(), None),
        desired_input_layouts=(Shard(1), None), use_local_output=True))
    tp.parallelize_module(model.transformer.h[-1], mesh, tp.PrepareModuleOutput(
        output_layouts=Shard(1), desired_output_layouts=Replicate()))


def qkv(model):
    """The keys of the weights of q, k and v: names, and AdamW's numbers."""
    names = sorted(model.named_parameters(), key=lambda one: one[1].dim() < 2)
    pairs = enumerate(name for name, _ in names)
    return {key for pair in pairs if "c_attn" in pair[1] for key in pair}


def swap(part, keys, *sizes, inside=False):
    """`part` with the first two of the sizes of rows swapped, at the keys."""
    if isinstance(part, dict):
        return {
            key: swap(one, keys, *sizes, inside=inside or key in keys)
            for key, one in part.items()
        }
    if inside and part.dim():  # not AdamW's count of steps
        return part.unflatten(0, (*sizes, -1)).transpose(0, 1).flatten(0, 2)
    return part


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.device = utils.device()
        self.model = model
        if args.compile:
            self.model.compile()
        self.train_data = train_data
        self.ranks = dist.get_world_size() // train_data.world_size
        self.optimizer = optimizer
        self.save_every = args.save_every
        self.path = args.checkpoint_path
        self.args = args
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.fp16)
        torch.manual_seed(args.seed + train_data.rank)  # the same dropout
        self.file = checkpoints.CheckpointFile(args, model, train_data)
        self._load_checkpoint()
        self.metrics = Metrics(args, model, train_data, self.steps_run)

    def _loss(self, source, targets):
        """Summed over the tokens: sums add up, at any number of processes."""
        with torch.autocast(self.device.type, **self.args.autocast):
            return self.model(source, targets)

    def _run_batch(self, source, targets, is_last):
        loss = self._loss(source, targets) / targets.numel()
        self.scaler.scale(loss / self.train_data.accumulation).backward()
        return loss.detach()

    @implicit_replication()  # the norm may be of shards and whole tensors
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
        dist.all_reduce(totals, group=self.train_data.group)
        if dist.get_rank() != 0:
            return
        self.metrics.trained(step, totals)

    @torch.no_grad()
    def _validate(self, step):
        self.model.eval()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in data.validation(self.train_data, self.args):
            totals[0] += self._loss(source, targets)
            totals[1] += (targets != data.PADDING).sum()
        self.model.train()
        dist.all_reduce(totals, group=self.train_data.group)
        if dist.get_rank() != 0:
            return
        self.metrics.validated(step, totals)

    def _save_checkpoint(self, step):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, checkpoints.rng_state(self.device))
        model = whole(self.model.state_dict())
        optimizer = whole(self.optimizer.state_dict())
        if dist.get_node_local_rank() != 0:
            return
        checkpoint = {
            "model": model,
            "optimizer": optimizer,
            "scaler": self.scaler.state_dict(),
            "rng": states,
            "steps_run": step + 1,
        }
        self.file.save(swap(checkpoint, qkv(self.model), self.ranks, 3))

    @implicit_replication()
    def _load_checkpoint(self):
        checkpoint = self.file.read()
        # Nodes share no disk: all take the newest checkpoint that any node has.
        progress = [None] * dist.get_world_size()
        dist.all_gather_object(progress, checkpoint["steps_run"])
        # Broadcast whole: through host memory, because no GPU has room for it.
        newest, hosts = [checkpoint], dist.new_group(backend="gloo")
        dist.broadcast_object_list(newest, progress.index(max(progress)), hosts)
        checkpoint = swap(newest[0], qkv(self.model), 3, self.ranks)
        self.steps_run = checkpoint["steps_run"]
        if self.steps_run > 0:
            # A step makes the optimizer's state, sharded as the weights are.
            own = {"model": self.model, "optimizer": self.optimizer}
            self._run_batch(*self.train_data[0][0], is_last=True)
            self.optimizer.step()
            for name, one in own.items():
                one.load_state_dict(shards(checkpoint[name], one.state_dict()))
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
    model = args.build(dataset.vocab_size).to(utils.device())
    split(model, device_mesh()["model"])
    groups = model.parameter_groups(args.weight_decay)
    optimizer = torch.optim.AdamW(groups, **args.adamw)
    return dataset, model, optimizer


def prepare_dataloader(dataset, args):
    group = device_mesh()["data"].get_group()
    return data.StepLoader(dataset, args, group)


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

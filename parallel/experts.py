"""Train a GPT whose experts are divided among the processes.

Paste this:

    torchrun --standalone --nproc_per_node=2 -m parallel.experts
"""

import math
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.utils import clip_grad_norm_

import mingpt.main
import utils
from guard import UserError
from mingpt import checkpoints, data
from mingpt.experts import Experts
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


EXPERTS, CHOSEN = 8, 2  # in each block, and for each token
BALANCE = 0.01  # the weight of the loss that wants experts to be equally busy


class Exchange(torch.autograd.Function):
    """Give each rank its rows, and take those that the ranks have for this."""

    @staticmethod
    def forward(context, rows, given, taken):
        context.back = taken, given
        output = rows.new_empty(sum(taken), rows.size(1))
        dist.all_to_all_single(output, rows.contiguous(), taken, given)
        return output

    @staticmethod
    def backward(context, gradient):
        return Exchange.apply(gradient, *context.back), None, None


class DividedExperts(Experts):
    """Each rank has some of the experts, and computes the tokens of all."""

    def divide(self, mesh):
        for name in ("first", "second"):
            weight = torch.nn.Parameter(distribute_tensor(
                getattr(self, name).data, mesh, [Shard(0)], src_data_rank=None))
            # The loss of a rank is a mean over its tokens. Experts see all.
            weight.register_hook(lambda gradient: gradient / mesh.size())
            setattr(self, name, weight)

    def compute(self, rows, counts, *weights):
        given = counts.unflatten(0, (dist.get_world_size(), -1))
        taken = torch.empty_like(given)  # from each rank, for each own expert
        dist.all_to_all_single(taken, given)
        sizes = given.sum(1).tolist(), taken.sum(1).tolist()
        rows = Exchange.apply(rows, *sizes)
        own = torch.arange(taken.size(1), device=rows.device).repeat(len(taken))
        order = own.repeat_interleave(taken.flatten()).argsort(stable=True)
        weights = (weight.to_local() for weight in weights)
        rows = super().compute(rows[order], taken.sum(0), *weights)
        return Exchange.apply(rows[order.argsort()], *reversed(sizes))

    def busy(self, counts):
        shares = super().busy(counts) / dist.get_world_size()
        dist.all_reduce(shares)
        return shares


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.device = utils.device()
        self.model = model
        if args.compile:
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
        self.model.set_requires_gradient_sync(is_last)
        loss = self._loss(source, targets) / targets.numel()
        balance = sum(block.mlp.balance for block in self.model.transformer.h)
        total = loss + BALANCE * balance
        self.scaler.scale(total / self.train_data.accumulation).backward()
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
        self.file.save(checkpoint)

    def _load_checkpoint(self):
        checkpoint = self.file.read()
        # Nodes share no disk: all take the newest checkpoint that any node has.
        progress = [None] * dist.get_world_size()
        dist.all_gather_object(progress, checkpoint["steps_run"])
        # Broadcast whole: through host memory, because no GPU has room for it.
        newest, hosts = [checkpoint], dist.new_group(backend="gloo")
        dist.broadcast_object_list(newest, progress.index(max(progress)), hosts)
        checkpoint = newest[0]
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
    model = args.build(dataset.vocab_size)
    size = dist.get_world_size()
    if EXPERTS % size:
        raise UserError(
            f"{size} processes cannot share {EXPERTS} experts: "
            f"start a number of processes that divides {EXPERTS}")
    mesh = init_device_mesh(utils.device().type, (size,))
    generator = torch.Generator().manual_seed(args.seed)
    for block in model.transformer.h:
        block.mlp = DividedExperts(block.mlp, EXPERTS, CHOSEN, generator)
        block.mlp.divide(mesh)
    experts = {one for one in model.parameters() if isinstance(one, DTensor)}
    for part in [*model.transformer.h, model]:
        # moves it to the device, and keeps a shard of all but the experts
        fully_shard(part, mesh=mesh, ignored_params=experts)
    groups = model.parameter_groups(args.weight_decay)
    optimizer = torch.optim.AdamW(groups, **args.adamw)
    return dataset, model, optimizer


def prepare_dataloader(dataset, args):
    return data.StepLoader(dataset, args)


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

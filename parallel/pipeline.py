"""Train a GPT of which each process holds a stage: some of the blocks.

Paste this:

    torchrun --standalone --nproc_per_node=2 -m parallel.pipeline
"""

import math
import os
import signal
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

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


class Stage(torch.nn.Module):
    """A run of blocks. The first stage embeds tokens, the last has the head."""

    def __init__(self, model, rank, size):
        super().__init__()
        parts, count = model.transformer, len(model.transformer.h)
        if count < size:
            raise UserError(
                f"n_layer is {count}, but {size} stages need at least {size}")
        start, stop = (math.ceil(count * n / size) for n in (rank, rank + 1))
        self.blocks, self.dropout = parts.h[start:stop], model.config.dropout
        if rank == 0:
            self.wte, self.wpe = parts.wte, parts.wpe
        if rank == size - 1:
            self.ln_f, self.lm_head = parts.ln_f, model.lm_head

    def forward(self, x):
        if hasattr(self, "wte"):
            x = self.wte(x) + self.wpe.weight[: x.size(1)]
            x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        if hasattr(self, "lm_head"):
            x = self.lm_head(self.ln_f(x)).flatten(0, 1)
        return x


class Trainer:
    def __init__(self, model, train_data, optimizer, args):
        self.device = utils.device()
        if args.fp16:
            raise UserError("no pipeline in fp16: pass --precision bf16")
        rank, size = dist.get_rank(), dist.get_world_size()
        self.whole, self.model = model, Stage(model, rank, size).to(self.device)
        if args.compile:
            self.model.compile()
        self.stage = PipelineStage(self.model, rank, size, self.device)
        self.schedule = Schedule1F1B(
            self.stage, size * args.accumulation(size),
            torch.nn.CrossEntropyLoss(reduction="sum"), scale_grads=False)
        self.ends = dist.new_group(sorted({0, size - 1}))
        self.hosts = dist.new_group(backend="gloo")
        self.train_data = train_data
        self.optimizer = optimizer
        self.save_every = args.save_every
        self.path = args.checkpoint_path
        self.args = args
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=args.fp16)
        torch.manual_seed(args.seed + dist.get_rank())  # own dropout
        self.file = checkpoints.CheckpointFile(args, model, train_data)
        self._load_checkpoint()
        for weight in {*model.parameters()} - {*self.model.parameters()}:
            shape = torch.nn.Parameter(weight.to("meta"))
            torch.utils.swap_tensors(weight, shape)  # frees its memory
            optimizer.state.pop(weight, None)
        self.metrics = Metrics(args, model, train_data, self.steps_run)

    def _loss(self, source, targets):
        """The last stage's, summed over the tokens; training runs backward."""
        run = self.schedule.step if self.model.training else self.schedule.eval
        inputs, losses = [source] * self.stage.is_first, []
        with torch.autocast(self.device.type, **self.args.autocast):
            run(*inputs, target=targets.flatten(), losses=losses)
        return sum(losses, torch.zeros((), device=self.device))

    def _run_batch(self, source, targets):
        loss = self._loss(source, targets) / targets.numel()
        self.stage.scale_grads(targets.numel())  # sum to mean
        return loss.detach()

    def _run_step(self, step):
        self.optimizer.zero_grad()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        batches = self.train_data[step]
        for source, targets in batches:
            loss = self._run_batch(source, targets)
            # Summed on the device: .item() would wait for it at every step.
            totals[0] += loss * len(source)
            totals[1] += len(source)
        self.scaler.unscale_(self.optimizer)  # before their norm is taken
        self._clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not self.metrics.is_due(step):
            return
        dist.broadcast(totals, dist.get_world_size() - 1)  # the last rank's
        if dist.get_rank() != 0:
            return
        self.metrics.trained(step, totals)

    def _clip(self):
        """Scale the gradients by their norm over all stages."""
        tied, first = self.whole.lm_head.weight, self.stage.is_first
        if tied.grad is not None:  # on the first and the last stage
            dist.all_reduce(tied.grad, group=self.ends)
        weights = [*self.model.parameters()]
        counted = [w.grad for w in weights if first or w is not tied]
        squares = get_total_norm(counted) ** 2
        dist.all_reduce(squares)
        clip_grads_with_norm_(weights, self.args.grad_clip, squares.sqrt())

    @torch.no_grad()
    def _validate(self, step):
        self.model.eval()
        totals = torch.zeros(2, device=self.device)  # summed loss, count
        for source, targets in data.validation(self.train_data, self.args):
            totals[0] += self._loss(source, targets)
            totals[1] += (targets != data.PADDING).sum()
        self.model.train()
        dist.broadcast(totals, dist.get_world_size() - 1)  # the last rank's
        if dist.get_rank() != 0:
            return
        self.metrics.validated(step, totals)

    def _save_checkpoint(self, step):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, checkpoints.rng_state(self.device))
        weights = self.whole.state_dict()
        optimizer = self.optimizer.state_dict()
        own = {key: w.cpu() for key, w in weights.items() if not w.is_meta}
        for key, state in optimizer["state"].items():
            own[key] = {name: value.cpu() for name, value in state.items()}
        stages = [None] * dist.get_world_size()
        dist.all_gather_object(stages, own, self.hosts)
        if dist.get_node_local_rank() != 0:
            return
        whole = {key: part for own in stages for key, part in own.items()}
        numbers = sorted({*whole} - {*weights})
        optimizer["state"] = {key: whole[key] for key in numbers}
        checkpoint = {
            "model": {key: whole[key] for key in weights},
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
        newest, source = [checkpoint], progress.index(max(progress))
        dist.broadcast_object_list(newest, source, self.hosts)
        checkpoint = newest[0]
        self.steps_run = checkpoint["steps_run"]
        if self.steps_run > 0:
            # In torch 2.9, the first batch draws dropout twice: to find shapes.
            self._run_batch(*self.train_data[0][0])
            self.whole.load_state_dict(checkpoint["model"])
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
    groups = model.parameter_groups(args.weight_decay)
    optimizer = torch.optim.AdamW(groups, **args.adamw)
    return dataset, model, optimizer


def prepare_dataloader(dataset, args):
    loader = data.StepLoader(dataset, args)
    # Every rank reads the same batch, whole.
    loader.rank, loader.world_size, loader.accumulation = 0, 1, 1
    return loader


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

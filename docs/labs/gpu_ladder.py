"""Measure what makes GPT-2 fast on a GPU, one change after the other.

    torchrun --standalone --nproc_per_node=1 -m docs.labs.gpu_ladder --nanogpt ~/nanoGPT

A row of LADDER has the options of the row above and one change. OTHERS differ
from the row that they name. If --nanogpt names a clone of nanoGPT, its model
and optimizer train beside ours, in a loop like its own. All rows take turns in
one process, so what else slows the machine down slows all of them. Printed are
the median of a row's turns, its factor, the MFU, the peak of the memory, and
how many graphs were compiled. The models of all rows stay in memory. Without a
GPU, the model is a small one.
"""

import argparse
import contextlib
import io
import os
import statistics
import sys
import time
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

import utils
from docs.labs import gpt2
from mingpt import flops, model
from mingpt.data import StepLoader
from mingpt.trainer import ddp_setup

PADDED = {"precision": "bf16", "padded": True}
WHOLE = {**PADDED, "compile": True, "split": False}
LADDER = {
    "fp32": {"precision": "fp32"},
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "vocabulary padded": PADDED,
    "compiled, cut at buckets": {**WHOLE, "split": True},
    "compiled whole": WHOLE,
    "micro-batch of 64": {**WHOLE, "batch_size": 64},
}
OTHERS = {
    "--deterministic": ("compiled whole", {**WHOLE, "deterministic": True}),
    "nanoGPT": ("vocabulary padded", {"precision": "bf16"}),
    "nanoGPT, compiled": ("compiled whole", {"precision": "bf16", "compile": True}),
    "nanoGPT, batch of 64": (
        "micro-batch of 64", {"precision": "bf16", "compile": True, "batch_size": 64},
    ),
}  # fmt: skip


class Row:
    """One way to train."""

    def __init__(self, name, batch_size=16, padded=False, split=False, **options):
        size = {"batch_size": batch_size * dist.get_world_size(), "micro_batch_size": batch_size}
        self.name, self.padded, self.split = name, padded, split
        self.args = gpt2.config(**size, **options)
        self.speeds, self.number = [], 0
        device = torch.get_device_module(utils.device())
        before = device.memory_allocated() if utils.num_gpus() else 0
        graphs = counters["aot_autograd"]["total"]
        make = nanogpt if "nanoGPT" in name else ours
        with contextlib.redirect_stdout(io.StringIO()):  # nanoGPT's says how many parameters it has
            self.step, gpt = make(self.args)
        peak = flops.peak(utils.device(), self.args.precision)
        self.limit = peak and peak * dist.get_world_size() / flops.per_token(gpt)
        self.train(3)  # compiles, makes the optimizer's averages, and sorts DDP's buckets
        if utils.num_gpus():
            device.reset_peak_memory_stats()
        self.train(1)
        self.speeds.clear()
        self.peak = device.max_memory_allocated() - before if utils.num_gpus() else 0
        self.graphs = counters["aot_autograd"]["total"] - graphs

    def train(self, steps):
        precise = self.args.precision == "fp32"
        torch.set_float32_matmul_precision("highest" if precise else "high")
        torch.use_deterministic_algorithms(self.args.deterministic)
        torch._dynamo.config.optimize_ddp = self.split
        pad = model.F.pad if self.padded else lambda weight, _: weight
        with patch.object(model.F, "pad", pad):
            wait()
            start = time.perf_counter()
            for _ in range(steps):
                self.step(self.number)
                self.number += 1
            wait()
        tokens = steps * self.args.batch_size * self.args.block_size
        self.speeds.append(tokens / (time.perf_counter() - start))

    @property
    def speed(self):
        return statistics.median(self.speeds)

    def line(self, other):
        mfu = f"MFU {self.speed / self.limit:5.1%} | " if self.limit else ""
        return (
            f"{self.name:24} | {self.speed:9,.0f} tokens/s | × {self.speed / other.speed:.2f} | "
            f"{mfu}{self.peak / 2**30:5.1f} GiB | {self.graphs} graphs"
        )


def wait():
    if utils.num_gpus():
        torch.accelerator.synchronize()
    dist.barrier()


def ours(args):
    trainer = gpt2.trainer(args)
    gpt = trainer.model.module
    gpt.__class__ = type("GPT", (model.GPT,), {})  # or rows of one type share compiled code
    return trainer._run_step, gpt


def nanogpt(args):
    """A step as train.py of nanoGPT makes it, at commit 3adf61e, with the biases that ours has."""
    import model as theirs  # in the folder of --nanogpt

    shape = args.shape(-(-gpt2.VOCABULARY // 64) * 64)
    names = "block_size", "vocab_size", "n_layer", "n_head", "n_embd", "dropout"
    sizes = {name: getattr(shape, name) for name in names}
    gpt = theirs.GPT(theirs.GPTConfig(**sizes, bias=True)).to(utils.device())
    kind = utils.device().type
    optimizer = gpt.configure_optimizers(0.1, 6e-4, (0.9, 0.95), kind)
    gpt.config = shape
    wrapped = torch.compile(gpt) if args.compile else gpt
    if dist.get_world_size() > 1:
        wrapped = DDP(wrapped)
    loader = StepLoader(gpt2.text(args.block_size), args)

    def step(number):
        for source, targets in loader[number]:
            with torch.autocast(kind, torch.bfloat16):
                _, loss = wrapped(source, targets.contiguous())
            loss.backward()
        clip_grad_norm_(wrapped.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, gpt


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", help="a clone of github.com/karpathy/nanoGPT")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="per turn")
    options = parser.parse_args()
    sys.path.insert(0, options.nanogpt or "")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # --deterministic needs it
    torch._dynamo.config.recompile_limit = 64  # each row compiles the same code
    torch._dynamo.config.automatic_dynamic_shapes = False  # a second batch size has its own code
    rows = {name: Row(name, **change) for name, change in LADDER.items()}
    for name, (_, change) in OTHERS.items():
        if options.nanogpt or "nanoGPT" not in name:
            rows[name] = Row(name, **change)
    for _ in range(options.rounds):
        for row in rows.values():
            row.train(options.steps)
    if dist.get_rank() == 0:
        above = rows["fp32"]
        for name, row in rows.items():
            other = rows[OTHERS[name][0]] if name in OTHERS else above
            line = row.line(other)
            print(f"{line} | against {other.name}" if name in OTHERS else line)
            above = row


if __name__ == "__main__":
    ddp_setup()
    main()
    dist.barrier()
    dist.destroy_process_group()

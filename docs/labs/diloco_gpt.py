"""Train the GPT on two nodes with a slow link, by DDP and by DiLoCo.

    python -m docs.labs.diloco_gpt

The nodes are namespaces of this machine (tools/cluster). Each has one process,
and sends at most 100 Mbit/s. A row has the bytes that node1's network card
sent in 1,000 steps, the loss over the validation text after them, and the
wall time. "averages" is DiLoCo with an outer rate of 1 and no momentum.

It needs root and Linux. Without them it prints docs/recorded/diloco_gpt.txt.
"""

import os
import sys
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from beyond import diloco
from docs.labs.box import on_two_nodes
from mingpt import config, trainer

STEPS, SYNC_EVERY, RATE = 1000, 100, "100mbit"
SHAPE = {"model": "gpt-nano", "n_layer": 2, "precision": "fp32"}
RATES = {"total_steps": STEPS, "warmup_steps": 100, "learning_rate": 2e-3}
ARGS = config.Config(**SHAPE, **RATES, cache=os.path.abspath("data"))


class DiLoCo(trainer.Trainer):
    """The trainer of mingpt, with the lines of the lesson."""

    _average = diloco.Trainer._average
    _outer_step = diloco.Trainer._outer_step

    def __init__(self, outer, model, *others):
        super().__init__(model, *others)
        self.model.require_backward_grad_sync = False
        self.anchor = parameters_to_vector(model.parameters()).detach()
        self.outer = torch.optim.SGD([self.anchor], **outer)

    def _run_step(self, step):
        super()._run_step(step)
        if (step + 1) % SYNC_EVERY == 0:
            # In one message. One per tensor would send a tenth more bytes.
            weights = parameters_to_vector(self.model.parameters()).detach()
            self._average([weights])
            vector_to_parameters(weights, self.model.parameters())
            self._outer_step()


def sent():
    """The bytes that the network card of this node has sent."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split()[9]) for line in lines if "eth0:" in line)


def train(name, kind):
    """Print a row. Returns the bytes that this node sent, and the loss."""
    dataset, model, optimizer = trainer.load_train_objs(ARGS)
    data = trainer.prepare_dataloader(dataset, ARGS)
    it, sums = kind(model, data, optimizer, ARGS), torch.ones(2)
    it.metrics.is_due = lambda step: False  # its line would send the loss
    it.metrics.validated = lambda step, totals: sums.copy_(totals)  # rank 0's
    dist.barrier()
    before, start = sent(), time.perf_counter()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = it._learning_rate(step)
        it._run_step(step)
    dist.barrier()
    seconds, size = time.perf_counter() - start, sent() - before
    it._validate(STEPS - 1)
    loss = (sums[0] / sums[1]).item()
    if dist.get_rank() == 0:
        row = f"{size / 1e6:6.2f} MB | loss {loss:.3f} | {seconds:5.1f} s"
        print(f"{name:8} | {row}", flush=True)
    return size, loss


def work():
    trainer.ddp_setup()
    size, loss = train("DDP", trainer.Trainer)
    _, averages = train("averages", partial(DiLoCo, {"lr": 1}))
    outer = {**diloco.OUTER, "momentum": 0.8}  # 0.9 needs more outer steps
    small, other = train("DiLoCo", partial(DiLoCo, outer))
    if dist.get_rank() == 0:
        more = f"DiLoCo {other / loss - 1:+.1%}"
        more += f", averages {averages / loss - 1:+.1%}"
        print(f"bytes 1/{size / small:.0f} of DDP's; losses: {more}")
    dist.barrier()
    dist.destroy_process_group()


def measure(cluster):
    env = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1"}
    env |= {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    env |= {"MASTER_PORT": "29500", "PYTHONPATH": os.getcwd()}
    env |= {"MASTER_ADDR": cluster.address("node1")}
    for name in cluster.nodes:
        cluster.limit(name, RATE)
    tokens = STEPS * ARGS.batch_size * ARGS.block_size
    print(f"two nodes, {RATE}, {tokens:,} tokens per row", flush=True)
    words = [sys.executable, "-m", "docs.labs.diloco_gpt"]
    ranks = [{**env, "RANK": str(rank)} for rank in (0, 1)]
    started = [*map(cluster.run, cluster.nodes, [words] * 2, ranks)]
    return max(abs(node.wait()) for node in started)


if __name__ == "__main__":
    recorded = "docs/recorded/diloco_gpt.txt"
    sys.exit(work() if "RANK" in os.environ else on_two_nodes(measure, recorded))

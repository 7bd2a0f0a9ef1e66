"""What DDP costs: the trainer's steps with and without it, turn by turn.

    OMP_NUM_THREADS=2 python tools/bench/ddp_cost.py
    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 tools/bench/ddp_cost.py

The second is what two processes pay to learn together. Prints the median of the ratios, and their
quartiles, for the trainer's one bucket and for DDP's own, of which the first has 1 MB.
"""

import os
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import clip_grad_norm_

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mingpt import cpu
from mingpt.config import Config
from mingpt.model import GPT, GPTConfig

TURNS, STEPS, BATCHES = 200, 2, (12, 64)


def seconds(model, optimizer, tokens):
    dist.barrier()  # else one waits in its turn for what the other still does in another
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(tokens, tokens) / tokens.numel()).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return time.perf_counter() - start


def main():
    kernels = cpu.apply(Config(precision="fp32", products="onednn"), None)
    kernels.use("onednn")  # all ranks the same
    alone = {"store": dist.HashStore(), "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **({} if "RANK" in os.environ else alone))
    shape = GPTConfig.preset("gpt-micro", vocab_size=65, block_size=64, dropout=0.0)
    models = {
        "without": GPT(shape),
        "one bucket": DDP(GPT(shape), bucket_cap_mb=25, gradient_as_bucket_view=True),
        "DDP's own": DDP(GPT(shape), gradient_as_bucket_view=True),
    }
    sides = {
        name: (model, torch.optim.AdamW(model.parameters(), fused=True))
        for name, model in models.items()
    }
    random.seed(0)  # the same order in each process
    for batch in BATCHES:
        tokens, turns = torch.randint(65, (batch, 64)), []
        for _ in range(TURNS):
            order = random.sample(list(sides), len(sides))
            turns.append({name: seconds(*sides[name], tokens) for name in order})
        if dist.get_rank() != 0:
            continue
        for name in list(sides)[1:]:
            ratios = sorted(turn[name] / turn["without"] for turn in turns[10:])  # warm by then
            print(
                f"{batch} sequences, {name}: with DDP / without: {statistics.median(ratios):.3f} "
                f"(quartiles {ratios[len(ratios) // 4]:.3f}, {ratios[3 * len(ratios) // 4]:.3f}), "
                f"torch {torch.__version__}, {dist.get_world_size()} processes of "
                f"{torch.get_num_threads()} threads"
            )
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

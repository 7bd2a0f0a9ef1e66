"""What DDP around one process costs: steps with and without it, turn by turn.

    OMP_NUM_THREADS=2 python tools/bench/ddp_cost.py

Prints the median of the ratios, and their quartiles.
"""

import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mingpt import memory
from mingpt.model import GPT, GPTConfig

TURNS, STEPS, BATCHES = 200, 2, (12, 64)


def seconds(model, optimizer, tokens):
    start = time.perf_counter()
    for _ in range(STEPS):
        optimizer.zero_grad()
        (model(tokens, tokens) / tokens.numel()).backward()
        optimizer.step()
    return time.perf_counter() - start


def main():
    memory.keep_freed()  # as the trainer does
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    shape = GPTConfig.preset("gpt-micro", vocab_size=65, block_size=64, dropout=0.0)
    bare, inner = GPT(shape), GPT(shape)
    wrapped = DDP(inner, gradient_as_bucket_view=True)
    sides = [
        (model, torch.optim.AdamW(model.parameters(), fused=True)) for model in (bare, wrapped)
    ]
    for batch in BATCHES:
        tokens, ratios = torch.randint(65, (batch, 64)), []
        for _ in range(TURNS):
            without, around = (seconds(*side, tokens) for side in sides)
            ratios.append(around / without)
        ratios = sorted(ratios[10:])  # the first turns warm up
        print(
            f"{batch} sequences: with DDP / without: {statistics.median(ratios):.3f} (quartiles "
            f"{ratios[len(ratios) // 4]:.3f}, {ratios[3 * len(ratios) // 4]:.3f}), "
            f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

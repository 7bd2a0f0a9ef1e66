"""A step of a small model with GPT-2's vocabulary, in bf16: what compiling the loss, too, is worth.

    OMP_NUM_THREADS=2 python tools/bench/compiled_loss.py

Forward and backward, three ways, in random order; prints the medians.
"""

import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mingpt.model import GPT, GPTConfig

TURNS, SHAPE = 40, (4, 64)


def made(compiled, loss_inside):
    """A function that does one step."""
    torch.manual_seed(0)
    model = GPT(GPTConfig.preset("gpt-micro", block_size=SHAPE[1], dropout=0.0))
    tokens = torch.randint(model.config.vocab_size, SHAPE)
    if compiled:
        model.compile()

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            if loss_inside:
                loss = model(tokens, tokens)
            else:
                logits = model(tokens).flatten(0, 1)
                loss = F.cross_entropy(logits, tokens.flatten(), reduction="sum")
        loss.backward()

    return step


def main():
    ways = {
        "not compiled": made(False, True),
        "logits compiled": made(True, False),
        "loss compiled": made(True, True),
    }
    seconds = {name: [] for name in ways}
    for turn in range(TURNS + 3):
        for name in random.sample(list(ways), len(ways)):
            start = time.perf_counter()
            ways[name]()
            if turn >= 3:  # the first compile
                seconds[name].append(time.perf_counter() - start)
    print(f"{SHAPE[0]} x {SHAPE[1]} tokens of 50,257, four layers, bf16, CPU, "
          f"torch {torch.__version__}, {torch.get_num_threads()} threads")  # fmt: skip
    for name, times in seconds.items():
        print(f"{name:16} {statistics.median(times) * 1e3:6.1f} ms")


if __name__ == "__main__":
    main()

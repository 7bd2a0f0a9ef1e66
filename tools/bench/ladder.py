"""What each optimisation buys: tokens per second of the trainer, rung by rung, side by side.

    python tools/bench/ladder.py laptop --rounds 3 > tools/bench/results/ladder.txt
    python tools/bench/ladder.py 8gpus --batch_size 16 --rounds 3     # GPT-2 124M, on one GPU

All rungs are run one after the other, and again `--rounds` times; each gives the median of the
tokens/s in its log, the first third left out. Options unknown to this file are the trainer's.
A preset with GPT-2's byte pairs learns random text of as many kinds of characters: all matrices
have their sizes, and nothing has to be downloaded.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mingpt.config import PRESETS  # noqa: E402
from tools.bench.trainers import hardware  # noqa: E402

CPU = {
    "fp32, one thread": (1, 1, "--precision fp32 --no_compile"),
    "AdamW not fused": (1, 1, "--precision fp32 --no_compile --no_fused"),
    "memory given back": (1, 1, "--precision fp32 --no_compile --no_keep_memory"),
    "products by MKL": (1, 1, "--precision fp32 --no_compile --products torch"),
    "two threads": (1, 2, "--precision fp32 --no_compile"),
    "two threads, compiled": (1, 2, "--precision fp32 --compile"),
    "two processes": (2, 1, "--precision fp32 --no_compile"),
    "two, twice the batch": (2, 1, "--precision fp32 --no_compile --batch_size 24"),
    "two, bf16": (2, 1, "--precision bf16 --no_compile"),
    "batch of 64": (1, 1, "--precision fp32 --no_compile --batch_size 64"),
    "two, batch of 2 × 64": (2, 1, "--precision fp32 --no_compile --batch_size 128"),
}
GPU = {
    "fp32": (1, 8, "--precision fp32 --no_compile --no_fused"),
    "TF32": (1, 8, "--precision tf32 --no_compile --no_fused"),
    "bf16": (1, 8, "--precision bf16 --no_compile --no_fused"),
    "bf16, compiled": (1, 8, "--precision bf16 --compile --no_fused"),
    "bf16, compiled, fused AdamW": (1, 8, "--precision bf16 --compile"),
}
KINDS = 50257  # GPT-2's tokens


def without_byte_pairs(preset, folder):
    """Options for a text in `folder` that has KINDS characters, if the preset wants byte pairs."""
    if PRESETS[preset].tokenizer == "chars":
        return []
    kinds = [chr(0x10000 + number) for number in range(KINDS)]
    text = kinds + random.Random(0).choices(kinds, k=1_000_000)
    path = Path(folder, "text")
    path.write_text("".join(text), encoding="utf-8")
    return ["--data", str(path), "--tokenizer", "chars", "--cache", folder]


def measure(preset, steps, rung, others):
    nproc, threads, options = rung
    words = f"torchrun --standalone --nproc_per_node={nproc} -m mingpt.main {preset} {options}"
    words += f" --total_steps {steps} --log_every {max(1, steps // 30)} --eval_every {10 * steps}"
    words += f" --save_every {10 * steps} --val_tokens 1024"
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            words.split() + others, cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        log = [json.loads(line) for line in Path(folder, "mingpt.jsonl").read_text().splitlines()]
    told = [line for line in log if "tokens_per_second" in line]
    told = told[len(told) // 3 :]
    return [statistics.median(line[key] for line in told) for key in ("tokens_per_second", "mfu")]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    args, others = parser.parse_known_args()
    gpu = torch.cuda.is_available()
    rungs = GPU if gpu else CPU
    found = {name: [] for name in rungs}
    with tempfile.TemporaryDirectory() as folder:
        words = without_byte_pairs(args.preset, folder) + others
        for _ in range(args.rounds):
            for name, rung in rungs.items():
                found[name].append(measure(args.preset, args.steps, rung, words))
                print(f"{name}: {found[name][-1][0]:,.0f} tokens/s", file=sys.stderr)
    facts = hardware()
    where = facts["gpu"] or f"{facts['cores']} cores, {facts['cpu']}"
    print(f"{' '.join([args.preset, *others])}: {where}, torch {facts['torch']}, "
          f"Python {facts['python']}, medians of {args.rounds}")  # fmt: skip
    base = found[next(iter(rungs))]
    for name, runs in found.items():
        speed, mfu = (statistics.median(column) for column in zip(*runs, strict=True))
        ratio = statistics.median(run[0] / first[0] for run, first in zip(runs, base, strict=True))
        print(f"{name:27} {speed:9,.0f} tokens/s   × {ratio:.2f}   MFU {mfu:.0%}")


if __name__ == "__main__":
    main()

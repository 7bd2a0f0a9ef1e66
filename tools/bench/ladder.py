"""Measure each optimization: tokens per second of the trainer, rung by rung, side by side.

    python tools/bench/ladder.py laptop --rounds 3 > tools/bench/results/ladder.txt
    python tools/bench/ladder.py 8gpus --batch_size 16 --rounds 3     # GPT-2 124M, on one GPU

On a CPU, all rungs start together and take turns of a second (see trainers.py). So they share the
machine's fast and slow minutes. A GPU's memory does not hold all rungs, so there they run one after
the other. A rung's clock runs only in its turns, after the first third of its steps.

A factor is a rung's speed over the first rung's in the same round, as the median over the rounds.
The speed beside it is this factor times the first rung's median speed. MFU belongs to that speed,
and is missing if the device's theoretical peak is unknown. The trainer gets all other options. If a
preset has GPT-2's byte pairs, the trainer learns random text with as many different characters:
every matrix keeps its size, without a download.
"""

import argparse
import random
import re
import statistics
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from mingpt.cli import parse  # noqa: E402
from mingpt.config import PRESETS, Config  # noqa: E402
from tools.bench.trainers import by_turns, hardware  # noqa: E402

# Processes, threads per process, options.
CPU = {
    "fp32, one thread": (1, 1, "--precision fp32 --no_compile"),
    "two threads": (1, 2, "--precision fp32 --no_compile"),
    "two threads, compiled": (1, 2, "--precision fp32 --compile"),
    "two processes": (2, 1, "--precision fp32 --no_compile"),
    "two, twice the batch": (2, 1, "--precision fp32 --no_compile --batch_size 24"),
    "two, bf16": (2, 1, "--precision bf16 --no_compile"),
    "batch of 64": (1, 1, "--precision fp32 --no_compile --batch_size 64"),
    "two, batch of 2 × 64": (2, 1, "--precision fp32 --no_compile --batch_size 128"),
}
GPU = {
    "fp32": (1, 8, "--precision fp32 --no_compile"),
    "TF32": (1, 8, "--precision tf32 --no_compile"),
    "bf16": (1, 8, "--precision bf16 --no_compile"),
    "bf16, compiled": (1, 8, "--precision bf16 --compile"),
}
KINDS = 50257  # GPT-2's vocabulary


def without_byte_pairs(preset, folder):
    """Options for a text in `folder` with KINDS characters, if the preset has byte pairs."""
    if PRESETS[preset].tokenizer == "chars":
        return []
    kinds = [chr(0x10000 + number) for number in range(KINDS)]
    text = kinds + random.Random(0).choices(kinds, k=1_000_000)
    path = Path(folder, "text")
    path.write_text("".join(text), encoding="utf-8")
    return ["--data", str(path), "--tokenizer", "chars", "--cache", folder]


class Rung:
    """A way to train; `speeds` has the tokens per second, per round."""

    def __init__(self, preset, steps, rung, others):
        processes, threads, options = rung
        words = f"{options} --total_steps {steps} --log_every {max(1, steps // 30)} --eval_every "
        words += f"{10 * steps} --save_every {10 * steps} --val_tokens 1024"
        words = [*words.split(), *others]
        args = parse(Config, words, PRESETS[preset], "")
        self.tokens, self.speeds, self.mfu_of_a_token = args.batch_size * args.block_size, [], None
        start = f"env OMP_NUM_THREADS={threads} torchrun --standalone --nproc_per_node={processes}"
        self.command = f"{start} -m mingpt.main {preset} {' '.join(words)}"

    def ran(self, run):
        """Keep the speed of a finished run, from its lines and their clock."""
        told = [
            (clock, int(found[1]), line)
            for clock, line in zip(run.clocks, run.process.lines, strict=True)
            if (found := re.match(r"Step +(\d+) \| train", line))
        ]
        (start, first, _), (end, last, line) = told[len(told) // 3], told[-1]
        self.speeds.append((last - first) * self.tokens / (end - start))
        if found := re.search(r"([\d,]+) tokens/s \| MFU ([\d.]+)%", line):
            self.mfu_of_a_token = float(found[2]) / 100 / int(found[1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("preset", choices=PRESETS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    args, others = parser.parse_known_args()
    gpu = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        words = without_byte_pairs(args.preset, folder) + others
        rungs = {
            name: Rung(args.preset, args.steps, rung, words)
            for name, rung in (GPU if gpu else CPU).items()
        }
        for _ in range(args.rounds):
            for names in [[name] for name in rungs] if gpu else [list(rungs)]:
                commands = {name: ("", rungs[name].command) for name in names}
                for name, run in by_turns(commands, None, 1.0).items():
                    rungs[name].ran(run)
                    print(f"{name}: {rungs[name].speeds[-1]:,.0f} tokens/s", file=sys.stderr)
    facts = hardware()
    where = facts["gpu"] or f"{facts['cores']} cores, {facts['cpu']}"
    print(f"{' '.join([args.preset, *others])}: {where}, torch {facts['torch']}, "
          f"Python {facts['python']}, medians of {args.rounds} rounds")  # fmt: skip
    base = next(iter(rungs.values())).speeds
    for name, rung in rungs.items():
        factor = statistics.median(a / b for a, b in zip(rung.speeds, base, strict=True))
        speed = factor * statistics.median(base)
        mfu = f"   MFU {speed * rung.mfu_of_a_token:.0%}" if rung.mfu_of_a_token else ""
        print(f"{name:27} {speed:9,.0f} tokens/s   × {factor:.2f}{mfu}")


if __name__ == "__main__":
    main()

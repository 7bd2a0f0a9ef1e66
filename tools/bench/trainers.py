r"""Trainers given by command line, side by side: speed by the wall clock, and time to a loss.

    python tools/bench/trainers.py --tokens 1536000 --target 1.88 --json result.json \
        "ours=torchrun --standalone --nproc_per_node=1 -m mingpt.main --data /path/to/text" \
        "other@/path/to/it=python train.py --device=cpu"

One after the other, then again from the first, `--rounds` times, each in a folder of its own (or in
the folder after the @). All of a run counts: imports, data, evaluation, checkpoints. A validation
loss is what follows "val loss" in what a trainer prints; the first at or below `--target` is when
it has learnt enough. `{round}` in a command is the number of the round, for seeds.
"""

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def run(command, folder, target):
    """Start `command` in `folder`: `(seconds, last val loss, seconds until the target or None)`."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    loss = reached = None
    start = time.perf_counter()
    process = subprocess.Popen(
        shlex.split(command), cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output = []
    for line in process.stdout:
        output.append(line)
        if found := re.search(r"val loss:? ([\d.]+)", line):
            loss = float(found[1])
            if target and loss <= target and reached is None:
                reached = time.perf_counter() - start
    if process.wait():
        sys.exit(f"status {process.returncode}: {command}\n{''.join(output[-20:])}")
    return time.perf_counter() - start, loss, reached


def hardware():
    facts = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", facts.read_text()) if facts.exists() else None
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": found[1] if found else platform.processor(),
        "cores": os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trainers", nargs="+", metavar="NAME[@FOLDER]=COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, required=True, help="that each of them trains on")
    parser.add_argument("--target", type=float, help="a validation loss")
    parser.add_argument("--json", type=Path, help="file for the result")
    args = parser.parse_args()

    trainers = {}
    for text in args.trainers:
        where, _, command = text.partition("=")
        name, _, folder = where.partition("@")
        trainers[name] = (folder, command)
    runs = {name: [] for name in trainers}
    for number in range(args.rounds):
        for name, (folder, command) in trainers.items():
            with tempfile.TemporaryDirectory() as own:
                one = run(command.replace("{round}", str(number)), folder or own, args.target)
            runs[name].append(one)
            seconds, loss, reached = one
            speed = args.tokens / seconds
            print(f"{name}: {seconds:.1f} s, {speed:,.0f} tokens/s, val loss {loss}, "
                  f"target after {reached and round(reached, 1)} s", flush=True)  # fmt: skip
    result = {"date": time.strftime("%Y-%m-%d"), **hardware(), "tokens": args.tokens, "runs": runs}
    base, *others = runs
    for other in others:
        pairs = list(zip(runs[other], runs[base], strict=True))
        result[f"speed of {base} over {other}"] = statistics.median(b[0] / a[0] for b, a in pairs)
        if args.target and all(run[2] for pair in pairs for run in pair):
            result[f"time to {args.target} of {other} over {base}"] = statistics.median(
                b[2] / a[2] for b, a in pairs
            )
    result["commands"] = {name: command for name, (_, command) in trainers.items()}
    print(json.dumps({k: v for k, v in result.items() if k not in ("runs", "commands")}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

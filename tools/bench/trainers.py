r"""Run trainers side by side, by their command lines: wall-clock speed, and time to a loss.

    python tools/bench/trainers.py --tokens 1536000 --target 1.88 --json result.json \
        "ours=torchrun --standalone --nproc_per_node=1 -m mingpt.main --data /path/to/text" \
        "other@/path/to/it=python train.py --device=cpu"

The trainers take turns: one runs for `--slice` seconds, then SIGSTOP stops it and the next one
runs. So all see the same minutes of a machine whose speed changes. A trainer's clock runs only in
its turns. When all have ended, the next of `--rounds` begins. Each trainer has its own folder, or
the one after the @. The whole run counts: imports, data, evaluation, checkpoints. The validation
loss is the number after "val loss" in a trainer's output. A trainer reaches `--target` with the
first loss at or below it. `{round}` in a command is the round's number, for seeds.

A rate that a trainer prints itself is too low: it includes the time while it was stopped.

GPT-2 124M on one GPU, beside nanoGPT in its folder (first run data/shakespeare/prepare.py there):

    python tools/bench/trainers.py --tokens 32768000 --json result.json \
        "ours=torchrun --standalone --nproc_per_node=1 -m mingpt.main 8gpus --data /path/to/text \
         --batch_size 16 --total_steps 2000 --eval_every 2000 --save_every 4000" \
        "nanogpt@/path/to/nanoGPT=python train.py --dataset=shakespeare --batch_size=16 \
         --gradient_accumulation_steps=1 --max_iters=2000 --eval_interval=2000 --eval_iters=16"
"""

import argparse
import contextlib
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

import psutil
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.errors import UserError, exit_status  # noqa: E402
from tools.processes import Process  # noqa: E402


class Run:
    """`command`, running in `folder`. `seconds` is the length of its turns so far, `loss` the last
    that it printed. `reached` is when the loss was first at most `target`, or None. `clocks` has
    the time of each line in `process.lines`.
    """

    def __init__(self, command, folder, target):
        self.command, self.target, self.stopped = command, target, []
        self.clocks = []
        self.seconds, self.loss, self.reached, self.resumed = 0.0, None, None, None
        env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        try:
            self.process = Process(shlex.split(command), folder, env, self._hear)
        except OSError as error:
            raise UserError(f"cannot start {command} in {folder}: {error}") from None

    def _hear(self, line):
        turn = time.perf_counter() - self.resumed if self.resumed else 0
        self.clocks.append(self.seconds + turn)
        if found := re.search(r"val loss:? ([\d.]+)", line):
            self.loss = float(found[1])
            if self.target and self.loss <= self.target and self.reached is None:
                self.reached = self.clocks[-1]

    def turn(self, seconds):
        """Run for `seconds`, or to the end. Returns whether it has ended."""
        self.resumed = time.perf_counter()
        for process in self.stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.process.wait(seconds)
        self.stopped = self._stop() + self._stop()  # twice: a process may start during the first
        turn, self.resumed = time.perf_counter() - self.resumed, None
        self.seconds += turn
        if self.process.process.returncode is None:
            return False
        if self.process.wait():
            raise UserError(f"status {self.process.process.returncode}: {self.process.tail}")
        return True

    def _stop(self):
        stopped = self.process.tree() if self.process.process.returncode is None else []
        for process in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        return stopped


def by_turns(commands, target, seconds):
    """Run all `commands`, {name: (folder or "", command)}, to their end: {name: Run}."""
    runs = {}
    with contextlib.ExitStack() as stack:
        waiting = dict(commands)
        while waiting:
            for name, (folder, command) in list(waiting.items()):
                if name not in runs:
                    folder = folder or stack.enter_context(tempfile.TemporaryDirectory())
                    runs[name] = Run(command, folder, target)
                    stack.enter_context(runs[name].process)
                if runs[name].turn(seconds):
                    del waiting[name]
    return runs


def commit(folder):
    """The folder's commit, with "-dirty" if files have changed; "" if unknown."""
    words = ["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=40"]
    with contextlib.suppress(OSError):  # no git
        return subprocess.run(words, capture_output=True, text=True).stdout.strip()
    return ""


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
    parser.add_argument("--slice", type=float, default=2.0, help="seconds per turn")
    parser.add_argument("--tokens", type=int, required=True, help="tokens that each trains on")
    parser.add_argument("--target", type=float, help="validation loss to reach")
    parser.add_argument("--json", type=Path, help="file for the result")
    args = parser.parse_args()

    trainers = {}
    for text in args.trainers:
        where, _, command = text.partition("=")
        name, _, folder = where.partition("@")
        trainers[name] = (folder, command)
    about = {
        name: {"command": command, "commit": commit(folder or ROOT)}
        for name, (folder, command) in trainers.items()
    }
    runs = {name: [] for name in trainers}
    for number in range(args.rounds):
        commands = {
            name: (folder, command.replace("{round}", str(number)))
            for name, (folder, command) in trainers.items()
        }
        for name, run in by_turns(commands, args.target, args.slice).items():
            runs[name].append((run.seconds, run.loss, run.reached))
            print(f"{name}: {run.seconds:.1f} s, {args.tokens / run.seconds:,.0f} tokens/s, "
                  f"val loss {run.loss}, target after {run.reached and round(run.reached, 1)} s",
                  flush=True)  # fmt: skip
    result = {"date": time.strftime("%Y-%m-%d"), **hardware(), "tokens": args.tokens, "runs": runs}
    base, *others = runs
    for other in others:
        pairs = list(zip(runs[other], runs[base], strict=True))
        result[f"speed of {base} over {other}"] = statistics.median(b[0] / a[0] for b, a in pairs)
        if args.target and all(run[2] for pair in pairs for run in pair):
            result[f"time to {args.target} of {other} over {base}"] = statistics.median(
                b[2] / a[2] for b, a in pairs
            )
    result["trainers"] = about
    print(json.dumps({k: v for k, v in result.items() if k not in ("runs", "trainers")}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(exit_status(main))

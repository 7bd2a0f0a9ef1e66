"""How much longer than its own start does `multigpu.py 50 10` take? Paired runs, median of ratios.

    python tools/bench/startup.py 7

The yardstick is this file itself, started with `--bare`: it imports torch and spawns two processes
that wrap a model in DDP and take one step. What the lesson adds is 50 epochs of training and five
checkpoints; the rest is imports, processes and the process group, which no script can avoid.

The floor is the yardstick and 1,600 bare all-reduces of the model's 21 gradients, one for each step
of the lesson: what remains if the data, the model, the optimizer and the files cost nothing.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

LESSON = Path(__file__).resolve().parents[2] / "multigpu.py"


def bare(rank, port, all_reduces):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    model = DDP(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model(torch.ones(32, 20)).sum().backward()
    optimizer.step()
    gradients = torch.zeros(21)
    for _ in range(all_reduces):
        dist.all_reduce(gradients)
    dist.barrier()
    del model, optimizer
    dist.destroy_process_group()


def seconds(*words):
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "NPROC": "2"}
        subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=int, nargs="?", default=7)
    parser.add_argument("--bare", type=int, metavar="ALL_REDUCES", help="be the yardstick")
    args = parser.parse_args()
    if args.bare is not None:
        store = dist.TCPStore("localhost", 0, is_master=True)
        mp.spawn(bare, (store.port, args.bare), nprocs=2)
        return
    ratios = []
    for _ in range(args.pairs):
        lesson, yardstick = seconds(LESSON, 50, 10), seconds(__file__, "--bare", 0)
        floor = seconds(__file__, "--bare", 50 * 32)
        ratios.append((lesson / yardstick, floor / yardstick))
        print(f"lesson {lesson:.2f} s, floor {floor:.2f} s, yardstick {yardstick:.2f} s")
    of_lesson, of_floor = (statistics.median(column) for column in zip(*ratios, strict=True))
    where = f"torch {torch.__version__}, {os.cpu_count()} cores"
    print(f"median of ratios: lesson {of_lesson:.2f}, floor {of_floor:.2f} ({where})")


if __name__ == "__main__":
    main()

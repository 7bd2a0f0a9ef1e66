"""Would a DataLoader's worker processes, and pinned memory, speed up the trainer?

    OMP_NUM_THREADS=1 python tools/bench/data_workers.py laptop

The trainer draws each step's batches itself, `loader[step]`. Here one model trains on the same
batches from either side, step by step, in random order. Prints medians: how long a step waits for
its data, and how long it takes in all.
"""

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import utils
from mingpt import data
from mingpt.config import PRESETS, Config
from tools.bench.trainers import hardware

STEPS = 600


def main():
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    device, steps = utils.device(), range(STEPS)
    with tempfile.TemporaryDirectory() as folder:
        args = Config(**{**vars(PRESETS[sys.argv[1]]), "cache": folder})
        dataset = data.load(args)
    itself, wrapped = (data.StepLoader(dataset, args) for _ in range(2))
    wrapped.device = torch.device("cpu")  # worker processes cannot use the GPU
    options = {"num_workers": 2, "pin_memory": device.type != "cpu"}
    workers = DataLoader(wrapped, batch_size=None, sampler=steps, **options)
    sides = {"the trainer": map(itself.__getitem__, steps), "two workers": iter(workers)}
    model = args.build(dataset.vocab_size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    waited, took = ({name: [] for name in sides} for _ in range(2))
    for name in [name for _ in steps for name in random.sample(list(sides), 2)]:
        start = time.perf_counter()
        batches = next(sides[name])
        waited[name].append(time.perf_counter() - start)
        optimizer.zero_grad()
        for batch in batches:
            source, targets = (part.to(device, non_blocking=True) for part in batch)
            (model(source, targets) / targets.numel()).backward()
        optimizer.step()
        model.lm_head.weight.sum().item()  # waits for the device
        took[name].append(time.perf_counter() - start)
    print(f"{sys.argv[1]}: {hardware()['gpu'] or hardware()['cpu']}, torch {torch.__version__}")
    for name in sides:
        wait, whole = (1e3 * statistics.median(times[name][50:]) for times in (waited, took))
        print(f"data by {name}: {wait:.2f} ms of a step of {whole:.1f} ms")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

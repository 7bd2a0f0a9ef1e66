"""Time a training step on one device, under data_parallel, and under DDP.

    OMP_NUM_THREADS=1 PYTHONPATH=. python docs/labs/dp_or_ddp.py

A device is one CPU core here, and there are two. The three take turns. It
prints the median step of each, as a share of the step on one device.
"""

import os
import time
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

import utils
from beyond.data_parallel import data_parallel


def seconds(model, forward, batch):
    start = time.perf_counter()
    model.zero_grad()
    forward(batch).square().mean().backward()
    return time.perf_counter() - start


def measure(rank, rounds=20):
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    model, batch = torch.nn.Sequential(*layers), torch.randn(2048, 512)
    threaded = partial(data_parallel, model, [torch.device("cpu")] * 2)
    ddp, times = DDP(model), []
    for _ in range(rounds):
        if rank == 0:
            alone = seconds(model, model, batch)
            threads = seconds(model, threaded, batch)
        dist.barrier()
        processes = seconds(model, ddp, batch.chunk(2)[rank])
        if rank == 0:
            times.append((alone, threads, processes))
    return times


def worker(rank, port):
    utils.set_device(rank)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port}
    dist.init_process_group("gloo")
    if times := measure(rank):
        alone, threads, processes = map(median, zip(*times[2:], strict=True))
        print(f"data_parallel: {threads / alone:.0%} of one device's time")
        print(f"DDP: {processes / alone:.0%}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    mp.spawn(worker, args=(str(utils.free_port()),), nprocs=2)

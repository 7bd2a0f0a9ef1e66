"""Let two ranks call different collectives, and save the flight recorder.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
    docs/labs/mismatch.py

Each rank writes what torch recorded to flight_RANK; flights.py reads it.
"""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace


def train(rank):
    for _ in range(3):
        dist.all_reduce(torch.zeros(21))
    if rank == 0:  # the mistake: only this rank sums its loss
        dist.all_reduce(torch.zeros(2))
    dist.broadcast(torch.zeros(20), src=0)
    dist.barrier()


def main(rank):
    try:
        train(rank)
    except RuntimeError as error:
        message = str(error).split("] ")[-1]
        print(f"rank {rank} | {message}\n", end="", flush=True)
        Path(f"flight_{rank}").write_bytes(_dump_fr_trace())


dist.init_process_group("gloo")
dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5))  # not half an hour
main(dist.get_rank())
os._exit(0)  # the group is broken: leave without it

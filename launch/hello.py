"""The first test of any set-up: who is there, and do they reach each other?

    torchrun --standalone --nproc_per_node=2 launch/hello.py

Start it in place of the training script, by whatever launcher.
"""

import os
import socket
import sys

import torch
import torch.distributed as dist

if "RANK" not in os.environ:
    sys.exit("hello.py: no RANK in the environment: a launcher has to start it")
local_rank = int(os.environ.get("LOCAL_RANK", 0))
if torch.cuda.is_available():
    torch.cuda.set_device(local_rank)
backend = "nccl" if torch.cuda.is_available() else "gloo"
dist.init_process_group(backend)
rank, world_size = dist.get_rank(), dist.get_world_size()
device = "cuda" if torch.cuda.is_available() else "cpu"
total = torch.tensor([float(rank)], device=device)
dist.all_reduce(total)
expected = world_size * (world_size - 1) / 2
names = [None] * world_size
dist.all_gather_object(names, f"{socket.gethostname()}:{local_rank}")
if rank == 0:
    line = ", ".join(f"rank {number} {name}" for number, name in enumerate(names))
    sys.stdout.write(f"{world_size} ranks over {backend}: {line}\n")
    sys.stdout.write(f"sum of the ranks: {total.item():g}, expected {expected:g}\n")
dist.barrier()
dist.destroy_process_group()
sys.exit(total.item() != expected)

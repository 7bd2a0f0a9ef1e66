"""The first test of any set-up: which ranks are there, and do they reach each other?

    torchrun --standalone --nproc_per_node=2 launch/hello.py

Start it in place of the training script, with any launcher.
"""

import os
import socket
import sys
import threading

import torch
import torch.distributed as dist

for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"):
    if name not in os.environ:
        sys.exit(f"hello.py: no {name} in the environment: a launcher has to start it")
    if name != "MASTER_ADDR" and not os.environ[name].isdecimal():
        sys.exit(f"hello.py: {name} is {os.environ[name]!r}, but must be a number from 0")
if int(os.environ["RANK"]) >= int(os.environ["WORLD_SIZE"]):
    told = "hello.py: RANK is {RANK}, but must be below WORLD_SIZE, {WORLD_SIZE}"
    sys.exit(told.format(**os.environ))
names = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE")
text = "  ".join(f"{name}={os.environ[name]}" for name in names if name in os.environ)
sys.stdout.write(f"rank {os.environ['RANK']}: {text}  on {socket.gethostname()}\n")
sys.stdout.flush()

device, backend = "cpu", "gloo"
if torch.cuda.is_available():
    device, backend = "cuda", "nccl"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
try:
    socket.getaddrinfo(os.environ["MASTER_ADDR"], None)  # or the group would hang
except (OSError, UnicodeError):
    text = "have /etc/hosts name it, or if there is one node, export PET_LOCAL_ADDR=127.0.0.1"
    sys.exit(f"hello.py: no address for {os.environ['MASTER_ADDR']}: {text}")
text = "hello.py: waiting for all {WORLD_SIZE} processes at {MASTER_ADDR}:{MASTER_PORT}\n"
waiting = threading.Timer(5, sys.stderr.write, [text.format(**os.environ)])
waiting.daemon = True
waiting.start()
dist.init_process_group(backend)
waiting.cancel()
total = torch.tensor([float(dist.get_rank())], device=device)
dist.all_reduce(total)
count = dist.get_world_size()
expected = count * (count - 1) / 2
if dist.get_rank() == 0:
    text = f"sum of the ranks: {total.item():g}, expected {expected:g}"
    sys.stdout.write(f"rank 0: {count} ranks over {backend}, {text}\n")
dist.barrier()
dist.destroy_process_group()
sys.exit(total.item() != expected)

"""Two jobs on one machine use the same port."""

import os

import torch.distributed as dist
import two

running = dist.TCPStore("localhost", 0, is_master=True)  # the first job
store = None
if two.FIXED:
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
else:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(running.port)  # often a literal "12355"
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
two.say(0, "second job started")
dist.destroy_process_group()

"""Train with DDP, and with weights averaged every 1, 8 and 100 steps.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
    -m docs.labs.sync_every 20

The four trainings take turns after each epoch, so that a busy machine slows
all of them alike. Prints the loss after the 5th and the last of 20 epochs, and
the median of their samples/s as a multiple of DDP's.
"""

import statistics
import sys
import time

import torch.distributed as dist

import multinode
import utils
from beyond import local_sgd

STEPS = (None, 1, 8, 100)  # None: DDP
trainers, logs = {}, {steps: [] for steps in STEPS}


def log(epoch, totals, start):
    loss, samples = totals.tolist()
    speed = samples / (time.perf_counter() - start)
    logs[steps].append((loss / samples, speed))


utils.report = log  # rank 0 calls it after each epoch
multinode.ddp_setup()
for steps in STEPS:
    lesson = local_sgd if steps else multinode
    dataset, model, optimizer = lesson.load_train_objs()
    data = lesson.prepare_dataloader(dataset, 32)
    trainers[steps] = lesson.Trainer(model, data, optimizer, 1, "no.pt")
for epoch in range(int(sys.argv[1])):
    for steps in STEPS:
        local_sgd.SYNC_EVERY = steps
        trainers[steps]._run_epoch(epoch)

if dist.get_rank() == 0:
    speeds = {}
    for steps, rows in logs.items():
        losses, each = zip(*rows, strict=True)
        speeds[steps] = statistics.median(each)
        name = f"every {steps}" if steps else "DDP"
        loss = f"loss {losses[4]:.5f}, then {losses[-1]:.5f}"
        ratio = speeds[steps] / speeds[None]
        print(f"{name:9} | {loss} | {ratio:4.1f} x the samples/s")
dist.barrier()
dist.destroy_process_group()

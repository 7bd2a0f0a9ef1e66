"""Train with weights averaged every 8 and every 32 steps, and watch two ranks drift apart.

    torchrun --standalone --nproc_per_node=2 -m docs.labs.drift 64

Prints how far the weights of the two ranks are from each other after each of 64 steps.
"""

import sys

import torch
import torch.distributed as dist

from beyond import local_sgd


def distances(every, steps):
    local_sgd.SYNC_EVERY = every
    dataset, model, optimizer = local_sgd.load_train_objs()
    data = local_sgd.prepare_dataloader(dataset, 32)
    trainer = local_sgd.Trainer(model, data, optimizer, 1, "no.pt")
    while trainer.steps < steps:
        data.sampler.set_epoch(trainer.steps)
        for source, targets in data:
            trainer._run_batch(source, targets)
            own = torch.cat([p.detach().flatten() for p in model.parameters()])
            both = own.clone()
            dist.all_reduce(both)
            yield (2 * own - both).norm().item()  # own - other


local_sgd.ddp_setup()
for every in (8, 32):
    found = [f"{one:.4f}" for one in distances(every, int(sys.argv[1]))]
    if dist.get_rank() == 0:
        print(f"every {every} |", *found)
dist.barrier()
dist.destroy_process_group()

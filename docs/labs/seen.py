"""Print which share of the samples the ranks of a script draw in an epoch.

    torchrun --standalone --nproc_per_node=2 docs/labs/seen.py multinode

Each rank trains for 20 epochs and notes the samples that its loader reads. The
shares are means over the epochs, beside 1 - (1 - 1/N)^N, which is expected if N
ranks draw independently.
"""

import contextlib
import importlib
import os
import sys
from collections import Counter
from itertools import chain

import torch.distributed as dist

sys.path.insert(0, os.getcwd())
EPOCHS = 20


class Noted:
    """A dataset that notes which samples are read."""

    def __init__(self, dataset):
        self.dataset, self.read = dataset, []

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        self.read.append(index)
        return self.dataset[index]


def count(script):
    """How many samples were used how many times in an epoch, summed over epochs."""
    dataset, model, optimizer = script.load_train_objs()
    noted, used = Noted(dataset), Counter()
    train_data = script.prepare_dataloader(noted, 32)
    trainer = script.Trainer(model, train_data, optimizer, 1, "unused.pt")
    for epoch in range(EPOCHS):
        noted.read.clear()
        with contextlib.redirect_stdout(None):
            trainer._run_epoch(epoch)
        ranks = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, noted.read)
        times = Counter(chain(*ranks))
        times.update(dict.fromkeys(range(len(dataset)), 0))
        used.update(times.values())
    return used


script = importlib.import_module(sys.argv[1])
script.ddp_setup()
used = count(script)
if dist.get_rank() == 0:
    n = dist.get_world_size()
    unused, once = used[0] / used.total(), used[1] / used.total()
    print(
        f"ranks {n} | seen {1 - unused:.1%}, independent draws {1 - (1 - 1 / n) ** n:.1%}"
        f" | more than once {1 - unused - once:.1%}"
    )
dist.barrier()
dist.destroy_process_group()

"""Train as beyond/uneven.py does on two ranks, in one process: the mean written by hand.

    python docs/labs/uneven_mean.py 10 by_hand.pt
    python docs/labs/uneven_mean.py 10 by_hand.pt --active

With --active, a step divides by the number of ranks that still have a batch.
"""

import sys
from itertools import zip_longest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, RandomSampler, Subset

import utils

epochs, path, *active = sys.argv[1:]
dataset = utils.MyTrainDataset()
torch.manual_seed(0)
model = torch.nn.Linear(20, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

loaders = []
for samples in (range(512), range(512, 2048)):
    own = Subset(dataset, samples)
    sampler = RandomSampler(own, generator=torch.Generator())
    loaders.append(DataLoader(own, 32, sampler=sampler))

for epoch in range(int(epochs)):
    for loader in loaders:
        loader.sampler.generator.manual_seed(epoch)
    for step in zip_longest(*loaders):
        batches = [batch for batch in step if batch]  # one per rank that has one
        divisor = len(batches) if active else len(loaders)
        optimizer.zero_grad()
        for source, targets in batches:
            (F.mse_loss(model(source), targets) / divisor).backward()
        optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

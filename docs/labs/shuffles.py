"""Which of 32 samples each of two ranks gets in five epochs, with and without `set_epoch`.

    python docs/labs/shuffles.py

A line has "with" or "without", the rank, the epoch, and the samples. The last lines begin with
"all": one rank has all samples.
"""

from torch.utils.data import DistributedSampler

for told in (True, False):
    for rank in range(2):
        sampler = DistributedSampler(range(32), num_replicas=2, rank=rank)
        for epoch in range(5):
            if told:
                sampler.set_epoch(epoch)
            print("with" if told else "without", rank, epoch + 1, *sampler)
sampler = DistributedSampler(range(32), num_replicas=1, rank=0)
for epoch in range(8):
    sampler.set_epoch(epoch)
    print("all", 0, epoch + 1, *sampler)

"""What the sampler of a loader is, and whether one of the script's own draws an order."""

import inspect

import torch.distributed as dist
from torch.utils.data import DistributedSampler, Sampler

DRAWS = {"permutation", "randperm", "sample", "shuffle"}  # also of numpy


def draws(loader):
    """Whether the code of a sampler of the script's own draws an order, each time that it begins.

    Not if it has an option that turns this off.
    """
    todo, seen = [loader.batch_sampler, loader.sampler], []
    while todo:
        one = todo.pop()
        own, kind = getattr(one, "__dict__", {}), type(one)
        if any(one is other for other in seen) or kind.__module__.startswith("torch."):
            continue
        seen.append(one)
        todo += [value for value in own.values() if isinstance(value, Sampler)]
        if any("shuffle" in name and not value for name, value in own.items()):
            continue
        names, unread = set(), ["__iter__", "set_epoch"]
        while unread:
            function = inspect.getattr_static(kind, name := unread.pop(), None)
            if name not in names and (code := getattr(function, "__code__", None)):
                names.add(name)
                nested = [code, *(c for c in code.co_consts if inspect.iscode(c))]
                unread += [n for c in nested for n in c.co_names]
                if any(DRAWS & {*c.co_names} for c in nested):
                    return True
    return False


def divides(sampler):
    """Whether it has this rank, as a sampler of the script's own that repeats augmentations."""
    own = getattr(sampler, "num_replicas", None), getattr(sampler, "rank", None)
    return own == (dist.get_world_size(), dist.get_rank())


def distributed(loader):
    """Its sampler; if a DistributedSampler is inside, that."""
    found = [loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler]
    for sampler in found:
        while sampler is not None and not isinstance(sampler, DistributedSampler):
            sampler = getattr(sampler, "sampler", None)
        if sampler is not None:
            return sampler
    return loader.sampler if loader.batch_sampler is None else found[1] or loader.batch_sampler

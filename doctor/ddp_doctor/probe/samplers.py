"""What the sampler of a loader is, and whether one of the script's own draws an order."""

import dis
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
        if any(DRAWS & {*code.co_names} for code in codes(kind, ("__iter__", "set_epoch"))):
            return True
    return False


def attributes(kind, names):
    """Those of an object that these methods of its class read, and never write."""
    reads, writes = set(), set()
    for code in codes(kind, names):
        before = None
        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_ATTR", "STORE_ATTR") and before == "self":
                (reads if step.opname == "LOAD_ATTR" else writes).add(step.argval)
            before = step.argval[-1] if isinstance(step.argval, tuple) else step.argval
    return reads - writes


def codes(kind, names):
    """The code of these methods of a class, and of its methods that they name."""
    unread, seen = [*names], set()
    while unread:
        function = inspect.getattr_static(kind, name := unread.pop(), None)
        if name not in seen and (code := getattr(function, "__code__", None)):
            seen.add(name)
            for one in (code, *filter(inspect.iscode, code.co_consts)):
                unread += one.co_names
                yield one


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

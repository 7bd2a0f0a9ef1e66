"""Count the collectives of one rank among many that do not exist, beside the formulas of costs.py.

    python docs/labs/fake_ranks.py

torch's `fake` backend answers each collective at once, so one process is enough at any world size.
What it computes is worth nothing, but not what it sends.
"""

import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[2]))
from mingpt.config import Config
from parallel import context_parallel, fsdp, tensor_parallel
from parallel.scale.costs import Layout, Model, Work, messages

SIZES = 2, 8, 64
SCRIPTS = {"shards": fsdp, "tensor": tensor_parallel, "context": context_parallel}
SHAPE = {"n_layer": 2, "n_head": 64, "n_embd": 128}  # all divide by 64
VOCABULARY, TIME, BATCH = 128, 64, 2
OPERATIONS = "all_gather", "reduce_scatter"


class Collectives(TorchDispatchMode):
    """How many there were of each, how many numbers and bytes they had, and their order."""

    def __init__(self):
        super().__init__()
        self.times, self.numbers, self.bytes = Counter(), Counter(), Counter()
        self.order = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        namespace, _, name = function.name().partition("::")
        operation = name.replace("allgather", "all_gather").lstrip("_")
        found = next((one for one in OPERATIONS if operation.startswith(one)), None)
        if found and "c10d" in namespace:
            self.times[found] += 1
            whole = max(map(volume, (*args[:2], result)))
            self.numbers[found] += whole[0]
            self.bytes[found] += whole[1]
            self.order.append(found)
        return result


def volume(tree):
    """The numbers and the bytes of its tensors."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return sum(one.numel() for one in tensors), sum(one.nbytes for one in tensors)


def count(script, size):
    """Of forward() and backward() of one micro-batch."""
    os.environ |= {"LOCAL_WORLD_SIZE": str(size), "LOCAL_RANK": "0"}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    script.data = SimpleNamespace(load=lambda _: SimpleNamespace(vocab_size=VOCABULARY))  # no text
    args = Config(model="gpt-nano", block_size=TIME, dropout=0.0, **SHAPE)
    _, model, _ = script.load_train_objs(args)
    tokens = torch.zeros(BATCH, TIME, dtype=torch.long)
    if script is context_parallel:
        (tokens,) = context_parallel.own_slice((tokens,))
        # The mode cannot watch torch's mask without numbers.
        context_parallel.causal_lower_right = lambda *shape: torch.ones(shape).bool()
    with Collectives() as seen:
        model(tokens, tokens).backward()
    dist.destroy_process_group()
    return {name: (times, seen.numbers[name]) for name, times in sorted(seen.times.items())}


def formula(dimension, size):
    model = Model(
        SHAPE["n_layer"], SHAPE["n_embd"], SHAPE["n_head"], SHAPE["n_head"], 4 * SHAPE["n_embd"],
        VOCABULARY, gated=False,
    )  # fmt: skip
    times, numbers = Counter(), Counter()
    for one in messages(model, Layout(**{dimension: size}), Work(BATCH, TIME, BATCH)):
        times[one.operation] += one.times
        numbers[one.operation] += one.times * one.numbers
    return {name: (times[name], numbers[name]) for name in sorted(times)}


def main():
    warnings.simplefilter("ignore")
    for dimension, script in SCRIPTS.items():
        for size in SIZES:
            counted, due = count(script, size), formula(dimension, size)
            told = ", ".join(f"{n} {name} of {all:,}" for name, (n, all) in counted.items())
            name, same = script.__name__.partition(".")[2], "equal" if due == counted else due
            print(f"{name:16} on {size:2} ranks, formula {same}: {told}")


if __name__ == "__main__":
    main()

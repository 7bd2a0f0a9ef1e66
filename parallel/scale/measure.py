"""What collectives and steps take on this machine, and the steps that follow from the collectives.

    torchrun --standalone --nproc_per_node=2 -m parallel.scale check
"""

import gc
import os
import time
import warnings
from contextlib import nullcontext
from itertools import pairwise
from statistics import median

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # it makes the backend known
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

SIZES = [2**n for n in (8, 12, 16, 18, 20, 21, 22)]  # numbers of the whole tensor, in fp32
FIRST, REST = 2**20, 25 * 2**20  # bytes of DDP's buckets: torch/nn/parallel/distributed.py
MODELS = [(512, 4, 64), (384, 8, 64), (512, 8, 256), (768, 6, 64), (768, 6, 256), (1024, 4, 128)]
COLLECTIVES = {
    "all_reduce": lambda whole, part: dist.all_reduce(whole, async_op=True),
    "all_gather": lambda whole, part: dist.all_gather_into_tensor(whole, part, async_op=True),
    "reduce_scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole, async_op=True),
}


def timed(device, *steps, times, unmeasured=3):
    """Seconds of each step on each rank, `[step][time][rank]`. They take turns, so that whatever
    else runs on the machine slows all of them alike.
    """
    own = [[] for _ in steps]
    for _ in range(times + unmeasured):
        for step, found in zip(steps, own, strict=True):
            begin = step()
            if device.type != "cpu":
                torch.accelerator.synchronize()
            found.append(time.perf_counter() - begin)
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    kept = ([rank[n][unmeasured:] for rank in ranks] for n in range(len(steps)))
    return [[*zip(*one, strict=True)] for one in kept]


def collectives(device, sizes=SIZES, times=12):
    """Seconds by operation and numbers, and those for which the first rank waits for the last.

    Each comes after some computing, as in training: in a loop of nothing else, all are faster. The
    last rank to arrive does not wait, so its time, the least, is that of the collective.
    """
    work = torch.randn(512, 512, device=device)
    found, waiting = {name: {} for name in COLLECTIVES}, {}
    for numbers in sizes:
        whole = torch.ones(numbers, device=device)
        part = torch.ones(numbers // dist.get_world_size(), device=device)

        for name, collective in COLLECTIVES.items():

            def step(collective=collective, whole=whole, part=part):
                for _ in range(4):
                    work @ work
                if device.type != "cpu":
                    torch.accelerator.synchronize()
                begin = time.perf_counter()
                collective(whole, part).wait()
                return begin

            (of_ranks,) = timed(device, step, times=times)
            found[name][numbers] = median(map(min, of_ranks))
            waiting.setdefault(numbers, median(max(one) - min(one) for one in of_ranks))
    return found, waiting


def between(table, numbers):
    """Seconds for so many numbers, from the two nearest sizes of the table."""
    sizes = sorted(table)
    pairs = [*pairwise(sizes)]
    low, high = next((pair for pair in pairs if numbers <= pair[1]), pairs[-1])
    slope = (table[high] - table[low]) / (high - low)
    return table[low] + slope * (max(numbers, sizes[0]) - low)


def buckets(parameters):
    """Numbers in each of DDP's buckets, for parameters in the order in which they are ready."""
    found, own = [], 0
    for numbers in parameters:
        own += numbers
        if 4 * own >= (REST if found else FIRST):
            found, own = [*found, own], 0
    return [*found, own] if own else found


def model(device, width, layers, mesh=None):
    """So many linear layers, each sharded over the mesh, if there is one."""
    parts = [(nn.Linear(width, width, bias=False), nn.ReLU()) for _ in range(layers)]
    made = nn.Sequential(*(part for pair in parts for part in pair)).to(device)
    for part in (*made, made) if mesh else ():  # without `made`, each would be a root, which keeps
        fully_shard(part, mesh=mesh)  # its weights between forward() and backward()
    return made


def steps(device, width, layers, batch, table, times=15):
    """(parameters, DDP predicted, measured, FSDP predicted, measured): seconds of a step.

    FSDP over the fake backend copies and computes all that FSDP does, and sends nothing.
    """
    fake = DeviceMesh.from_group(dist.new_group(backend="fake"), device.type)
    mesh = DeviceMesh.from_group(dist.group.WORLD, device.type)
    shape = device, width, layers
    ddp, shards, silent = DDP(model(*shape)), model(*shape, mesh), model(*shape, fake)
    data = torch.randn(batch, width, device=device)

    def step(model, context=nullcontext):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        dist.barrier()
        begin = time.perf_counter()
        with context():
            model(data).square().mean().backward()
        optimizer.step()
        model.zero_grad()
        return begin

    alone = lambda: step(ddp, ddp.no_sync)  # noqa: E731
    runs = alone, lambda: step(ddp), lambda: step(silent), lambda: step(shards)
    alone, with_ddp, silent, with_fsdp = (
        median(map(max, one)) for one in timed(device, *runs, times=times)
    )
    one = width**2
    sent = sum(between(table["all_reduce"], numbers) for numbers in buckets([one] * layers))
    gathered, scattered = (between(table[name], one) for name in ("all_gather", "reduce_scatter"))
    single = dist.get_world_size() == 1  # then FSDP calls no collective
    moved = 0 if single else layers * (2 * gathered + scattered)
    return layers * one, alone + sent, with_ddp, silent + moved, with_fsdp


def main(check):
    import utils

    warnings.simplefilter("ignore")
    device_id = utils.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(device_id=device_id)
    device = utils.device()
    table, waiting = collectives(device)
    rows = [steps(device, *shape, table) for shape in MODELS] if check else []
    if dist.get_rank() == 0:
        print("  numbers  all-reduce  all-gather  reduce-scatter  waits, in ms")
        for numbers, wait in waiting.items():
            three = (1000 * table[name][numbers] for name in COLLECTIVES)
            print("{:9,}{:12.2f}{:12.2f}{:16.2f}{:14.2f}".format(numbers, *three, 1000 * wait))
        for kind, at in (("DDP", 1), ("FSDP", 3)) if check else ():
            errors = [row[at] / row[at + 1] - 1 for row in rows]
            for (numbers, *told), error in zip(rows, errors, strict=True):
                ours, real = (1000 * one for one in told[at - 1 : at + 1])
                print(f"{kind:4} {numbers:9,} parameters: predicted {ours:5.0f} ms, ", end="")
                print(f"measured {real:5.0f}, {error:+.0%}")
            print(f"{kind:4} median error {median(map(abs, errors)):.0%}")
    gc.collect()  # DDP models that live on can abort the process
    dist.barrier()
    dist.destroy_process_group()

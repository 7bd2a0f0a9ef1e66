"""Measure when a process computes and when it communicates, in four variants.

    python docs/theory/timeline.py

The variants are average_by_hand.py, average_with_hooks.py,
average_in_buckets.py and DDP, all with a larger model. With --json FILE the
script also writes the events of one iteration per variant, for a figure.
Runs two CPU processes over gloo, with or without GPUs. NPROC=4 starts four.
"""

import argparse
import copy
import json
import statistics
import time

import average_by_hand
import average_in_buckets
import average_with_hooks
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from average_by_hand import WORLD_SIZE, check, largest
from torch.nn.parallel import DistributedDataParallel as DDP

SCRIPTS = (average_by_hand, average_with_hooks, average_in_buckets)
LAYERS, WIDTH, BATCH, BUCKET_MIB = 8, 1024, 64, 8
ITERATIONS, WARM_UP = 5, 2  # DDP rebuilds its buckets after the first iteration
now = time.perf_counter  # the same clock in all processes of a machine

events = []  # (kind, start, end) of the current iteration
notes = []  # futures: done when the all-reduces have added their events


def noted(all_reduce):
    """Wrap `all_reduce` so that it adds its start and end to `events`."""

    def all_reduce_and_note(tensor, async_op=False):
        start = now()
        work = all_reduce(tensor, async_op=True)
        notes.append(work.get_future().then(
            lambda _: events.append(("all_reduce", start, now()))))
        if not async_op:
            work.wait()
        return work

    return all_reduce_and_note


def average_bucket(_, bucket):
    """Average a bucket as DDP does, but through the wrapped all_reduce."""
    gradient = bucket.buffer().div_(WORLD_SIZE)
    work = dist.all_reduce(gradient, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def prepare():
    """Return the four models, each with what to call after backward()."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
    model = torch.nn.Sequential(*layers)
    average_in_buckets.BUCKET_BYTES = BUCKET_MIB * 2**20
    prepared = {}
    for script in SCRIPTS:
        copied = copy.deepcopy(model)
        average = script.OurDDP(copied).average_gradients
        prepared[script.__name__] = copied, average
    ddp = DDP(model, bucket_cap_mb=BUCKET_MIB)
    ddp.register_comm_hook(None, average_bucket)
    prepared["DDP"] = ddp, lambda: None  # its backward() waits for the averages
    for model, _ in prepared.values():
        last = next(model.parameters())  # the last to get its gradient
        last.register_post_accumulate_grad_hook(
            lambda _: events.append(("computed", now(), now())))
    return prepared


def iterate(model, average_gradients, inputs):
    """Run one step without the optimizer, and return its events."""
    model.zero_grad()
    dist.barrier()
    events.clear()
    start = now()
    loss = F.mse_loss(model(inputs), inputs)
    forward = now()
    loss.backward()
    average_gradients()
    end = now()
    torch.futures.wait_all(notes)
    notes.clear()
    computed = next(time for kind, time, _ in events if kind == "computed")
    return [
        ("forward", start, forward), ("backward", forward, computed),
        ("step", start, end), *(e for e in events if e[0] == "all_reduce")]


def milliseconds(iteration):
    """Return the columns of the table for one iteration."""
    (_, start, forward), (_, _, computed), (_, _, end), *reduces = iteration
    under_way = until = 0
    for _, begun, done in sorted(reduces):  # overlapping ones count once
        under_way += max(0, done - max(begun, until))
        until = max(done, until)
    return [
        1000 * (forward - start), 1000 * (computed - forward), 1000 * under_way,
        len(reduces), 1000 * (end - computed), 1000 * (end - start)]


def main(rank, path, differences):
    torch.set_num_threads(1)
    dist.all_reduce = noted(dist.all_reduce)
    prepared = prepare()
    torch.manual_seed(rank)
    inputs = torch.randn(BATCH, WIDTH)
    measured = {name: [] for name in prepared}
    order = list(prepared)
    for _ in range(WARM_UP + ITERATIONS):
        order.append(order.pop(0))  # each time, another variant runs first
        for name in order:
            measured[name].append(iterate(*prepared[name], inputs))
    for iterations in measured.values():
        del iterations[:WARM_UP]
    gradients = [
        torch.cat([p.grad.flatten() for p in model.parameters()])
        for model, _ in prepared.values()]
    differences[rank] = max(largest(g - gradients[-1]) for g in gradients)
    everyone = [None] * WORLD_SIZE if rank == 0 else None
    dist.gather_object(measured, everyone)
    if rank == 0:
        report(everyone, path)


def report(everyone, path):
    """Print the table; write the events of the median iterations to `path`."""
    print(f"Milliseconds on rank 0, medians of {ITERATIONS} iterations:")
    print(f"{'':20}forward  backward  all-reduces  after backward   step")
    lines = []
    for name, iterations in everyone[0].items():
        took = [milliseconds(events) for events in iterations]
        columns = zip(*took, strict=True)
        medians = [statistics.median(column) for column in columns]
        print(
            f"{name:18}{{:9.1f}}{{:10.1f}}{{:8.1f}} in {{}}{{:16.1f}}{{:7.1f}}"
            .format(*medians))
        number = [step for *_, step in took].index(medians[-1])
        ranks = [measured[name][number] for measured in everyone]
        zero = min(start for events in ranks for _, start, _ in events)
        lines += [
            {"variant": name, "rank": rank, "kind": kind,
             "start": 1000 * (start - zero), "end": 1000 * (end - zero)}
            for rank, events in enumerate(ranks) for kind, start, end in events]
    if path:
        with open(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)


def worker(rank, port, *args):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    try:
        main(rank, *args)
        dist.barrier()  # wait until every rank is done
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE", help="one event a line")
    path = parser.parse_args().json
    differences = torch.zeros(WORLD_SIZE).share_memory_()
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
    mp.spawn(worker, args=(store.port, path, differences), nprocs=WORLD_SIZE)
    check(
        differences.max() < 1e-6,
        f"All four leave the same gradients, to {differences.max():.0e}")

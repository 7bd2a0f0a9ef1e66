"""Measure where the time of a training step goes, per rank, and what helps.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
    -m docs.labs.where_time_goes

CASES are a healthy training with DDP and four bad ones. All run, or those that
you name after the command. The first table has milliseconds per step.
"no_sync" is "computing", measured a second time: the same steps without
messages, in turns with the others. "share" is the share of the time in which a
rank did not wait for its loader, and "MB" the size of the gradients.
The second table has the samples per second of all ranks, without a remedy and
with it. All numbers are means over the faster half of the steps.
"""

import contextlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, RandomSampler

ROUNDS, STEPS = 3, 8
HEALTHY = {
    "width": 256, "depth": 16,  # one layer, applied so often
    "batch": (64, 64),  # samples of rank 0 and of rank 1
    "decode": 0, "device": 0,  # milliseconds of sleep, to read and to compute a sample
    "workers": 0, "parts": 1,  # batches before an update
}  # fmt: skip
CASES = {
    "healthy": {},
    "slow loader": {"depth": 1, "device": 0.15, "decode": 0.25},
    "large model": {"width": 2048, "depth": 1, "batch": (8, 8)},
    "slow rank": {"depth": 1, "device": 0.1, "batch": (16, 176)},
    "tiny model": {"width": 8, "depth": 1, "batch": (32, 32)},
}
REMEDIES = {
    "slow loader": {"num_workers=2": {"workers": 2}},
    "large model": {"accumulate 4 batches": {"parts": 4}, "4 x the batch": {"batch": (32, 32)}},
    "slow rank": {"equal work": {"batch": (96, 96)}},
    "tiny model": {"32 x the batch": {"batch": (1024, 1024)}},
}
NAMES = "loader", "computing", "communication", "waiting", " step", "no_sync", "share", "    MB"


class Data:
    def __init__(self, decode):
        self.decode = decode

    def __getitems__(self, indices):  # a whole batch at once
        time.sleep(self.decode * len(indices) / 1e3)
        return torch.ones(len(indices), 20), torch.ones(len(indices), 1)


def timed_all_reduce(durations, bucket):
    """A communication hook: what DDP does without one, with a clock."""
    start = time.perf_counter()
    mean = bucket.buffer().div_(dist.get_world_size())
    dist.all_reduce(mean)
    durations.append(time.perf_counter() - start)
    future = torch.futures.Future()
    future.set_result(mean)
    return future


def measure(width, depth, batch, decode, device, workers, parts):
    """Rows of (loader, step, all-reduce), in ms: of steps that send, and of others."""
    batch, durations, rows = batch[dist.get_rank()], [], {True: [], False: []}
    middle = torch.nn.Linear(width, width)
    layers = [torch.nn.Linear(20, width), *[middle, torch.nn.ReLU()] * depth]
    # One bucket: its all-reduce begins when backward() has ended, so nothing overlaps.
    model = DDP(torch.nn.Sequential(*layers, torch.nn.Linear(width, 1)), bucket_cap_mb=1000)
    model.register_comm_hook(durations, timed_all_reduce)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    sampler = RandomSampler(range(4096), replacement=True, num_samples=10**6)
    options = {"sampler": sampler, "num_workers": workers, "collate_fn": tuple}
    data = iter(DataLoader(Data(decode), batch, **options))
    for sync in [False, True] * ROUNDS:
        dist.barrier()
        for step in range(STEPS + 1):
            start, loading = time.perf_counter(), 0
            for part in range(parts):
                asked = time.perf_counter()
                source, targets = next(data)
                loading += time.perf_counter() - asked
                sends = sync and part + 1 == parts
                with contextlib.nullcontext() if sends else model.no_sync():
                    loss = F.mse_loss(model(source), targets)
                    time.sleep(device * batch / 1e3)
                    loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step > 0:  # the first one is irregular
                seconds = loading, time.perf_counter() - start, durations[-1] if sync else 0
                rows[sync].append([number * 1e3 for number in seconds])
    return rows[True], rows[False]


def faster_half(rows):
    """Of a tensor by ranks, steps and numbers: the steps whose slowest rank is fast."""
    order = rows[:, :, 1].amax(0).argsort()
    return rows[:, order[: len(order) // 2]].unbind(2)


def table(ranks):
    """NAMES of each rank, up to "share"."""
    sending, alone = (torch.tensor(rows, dtype=torch.float64) for rows in zip(*ranks, strict=True))
    loader, step, own = faster_half(sending)
    # The last rank to arrive does not wait, so the shortest all-reduce is communication.
    sent = own.amin(0).expand_as(own)
    parts = [loader, step - loader - own, sent, own - sent, step]
    loader_alone, step_alone, _ = faster_half(alone)
    columns = [part.mean(1) for part in (*parts, step_alone - loader_alone)]
    return torch.stack([*columns, 1 - columns[0] / columns[4]], 1).tolist()


def main():
    dist.init_process_group("gloo")
    lines, gains, speeds = [f"{'':11}  rank  {'  '.join(NAMES)}"], [], {}
    for name in sys.argv[1:] or CASES:
        for change, more in {"": {}, **REMEDIES.get(name, {})}.items():
            case = {**HEALTHY, **CASES[name], **more}
            ranks = [None] * dist.get_world_size()
            dist.all_gather_object(ranks, measure(**case))
            rows, width = table(ranks), case["width"]
            speed = sum(case["batch"]) * case["parts"] / max(row[4] for row in rows) * 1e3
            before = speeds.setdefault(name, speed)
            gain = f"{before:7,.0f} to {speed:9,.0f} samples/s, {speed / before:4.1f} x"
            gains += [f"{name:11}  {change:20}  {gain}"] if change else []
            for rank, (*times, share) in enumerate(rows if not change else []):
                size = (width * width + 23 * width + 1) * 4 / 1e6
                cells = [*(f"{time:.1f}" for time in times), f"{share:.0%}", f"{size:.3f}"]
                cells = map(str.rjust, cells, map(len, NAMES))
                lines.append(f"{name:11}  {rank:4}  {'  '.join(cells)}")
    if dist.get_rank() == 0:
        print("\n".join([*lines, "", *gains]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Measure when each stage of a pipeline computes, and how long it waits.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=4 \
    -m docs.labs.bubble

A batch costs each rank 480 ms, a third of it forward. The rank sleeps so long,
as a CPU does while its GPU computes, so ranks do not compete for cores.
"bubble" is the share of the step in which a rank waits, on average. "formula"
is (S - 1) / (v M + S - 1) for S ranks, v stages on each and M micro-batches.
"kept" is for how many forward passes at most rank 0 keeps activations. All are
of the fastest of four steps, the least disturbed one. With --json FILE, its
events go there.
"""

import argparse
import copy
import json
import time

import torch
import torch.distributed as dist
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

MILLISECONDS, STEPS = 480, 4
CASES = [
    (ScheduleGPipe, 4), (ScheduleGPipe, 8), (Schedule1F1B, 4), (Schedule1F1B, 8),
    (Schedule1F1B, 16), (ScheduleInterleaved1F1B, 8),
]  # fmt: skip


class Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, seconds):
        ctx.seconds = seconds
        time.sleep(seconds)
        return tensor.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None


class Part(torch.nn.Linear):
    def __init__(self, seconds):
        super().__init__(8, 8)
        self.seconds = seconds

    def forward(self, tensor):
        return Sleep.apply(super().forward(tensor), self.seconds)


def noted(stage, kind, compute, events):
    """Wrap `compute`, so that it adds its micro-batch and its times to `events`."""

    def compute_and_note(number, *args, **kwargs):
        start = time.perf_counter()
        result = compute(number, *args, **kwargs)
        events.append((kind, stage.stage_index, number, start, time.perf_counter()))
        return result

    return compute_and_note


def measure(schedule, count):
    """The events of all ranks in each step: [step][rank]."""
    rank, size = dist.get_rank(), dist.get_world_size()
    each = 2 if schedule is ScheduleInterleaved1F1B else 1  # stages per rank
    part = Part(MILLISECONDS / 3e3 / count / each)
    events, steps, stages = [], [], []
    for index in range(rank, each * size, size):
        stage = PipelineStage(copy.deepcopy(part), index, each * size, torch.device("cpu"))
        stages.append(stage)
        stage.forward_one_chunk = noted(stage, "forward", stage.forward_one_chunk, events)
        stage.backward_one_chunk = noted(stage, "backward", stage.backward_one_chunk, events)
    run = schedule(stages if each > 1 else stages[0], count, torch.nn.MSELoss()).step
    batch = torch.randn(count, 8)
    for _ in range(STEPS + 1):
        dist.barrier()
        events.clear()
        run(*[batch] * (rank == 0), target=batch)
        ranks = [None] * size
        dist.all_gather_object(ranks, events)
        steps.append(ranks)
    return each, steps[1:]  # the first step finds the shapes


def took(ranks):
    """Seconds from the first start to the last end."""
    times = [event[3:] for events in ranks for event in events]
    return max(end for _, end in times) - min(start for start, _ in times)


def bubble(ranks):
    computing = sum(end - start for events in ranks for *_, start, end in events)
    return 1 - computing / len(ranks) / took(ranks)


def kept(events):
    now, most = 0, 0
    for kind, *_ in events:
        now += 1 if kind == "forward" else -1
        most = max(most, now)
    return most


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", metavar="FILE", help="one event per line")
    path = parser.parse_args().json
    dist.init_process_group("gloo")
    size, lines = dist.get_world_size(), []
    for schedule, count in CASES:
        each, steps = measure(schedule, count)
        if dist.get_rank() > 0:
            continue
        name = schedule.__name__.removeprefix("Schedule")
        ranks = min(steps, key=took)
        formula = (size - 1) / (each * count + size - 1)
        print(
            f"{name:15} | {count:2} micro-batches | {1e3 * took(ranks):4.0f} ms | "
            f"bubble {bubble(ranks):4.0%}, formula {formula:4.0%} | kept {kept(ranks[0])}",
            flush=True,
        )
        zero = min(event[3] for events in ranks for event in events)
        lines += [
            {"schedule": name, "micro_batches": count, "rank": rank, "stage": stage, "kind": kind,
             "number": number, "start": 1e3 * (start - zero), "end": 1e3 * (end - zero)}
            for rank, events in enumerate(ranks) for kind, stage, number, start, end in events
        ]  # fmt: skip
    if path and dist.get_rank() == 0:
        with open(path, "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

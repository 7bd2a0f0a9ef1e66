"""Look into one training step of GPT-2 on a GPU: its memory, and its streams.

    torchrun --standalone --nproc_per_node=1 -m docs.labs.gpu_step 16 --compile

The number is the micro-batch, in sequences of 1,024 tokens. The first lines are
the memory that tensors have at 48 moments of a step. Then one line per stream
and kind of kernel: how long its kernels ran, and how much of that while another
stream ran kernels too. memory0.pickle and step0.json have all of it, for
https://docs.pytorch.org/memory_viz and https://ui.perfetto.dev.
"""

import json
import re
import sys
import time
from collections import defaultdict

import torch
import torch.distributed as dist

import utils
from docs.labs import gpt2
from mingpt.trainer import ddp_setup

MOMENTS = 48
KINDS = {  # by the names that kernels have, the first that fits
    "all-reduce": "nccl",
    "compiled": "^triton",
    "attention": "flash|fmha|sdpa|attention",
    "matrix products": "gemm|cutlass|nvjet|xmma|cublas",
    "optimizer, clip": "adam|multi_tensor",
    "others": "",
}


def memory(events, marks, first):
    """One line per moment: milliseconds, GiB, phase. `events` are the allocator's."""
    changes, held = {"alloc": 1, "free_completed": -1}, first
    points = [(0, first)]
    for event in events:
        held += changes.get(event["action"], 0) * event["size"]
        points.append((event["time_us"], held))
    start, end = marks[0][1], marks[-1][1]
    for at in range(MOMENTS):
        left, right = (start + (end - start) * (at + one) / MOMENTS for one in (0, 1))
        before = [size for moment, size in points if moment < left][-1]
        most = max([before, *(size for moment, size in points if left <= moment < right)])
        phase = [name for name, begin in marks if begin <= left][-1]
        yield f"{(left - start) / 1e3:6.1f} ms | {most / 2**30:6.2f} GiB | {phase}"
    yield from (f"{(begin - start) / 1e3:6.1f} ms | {phase} begins" for phase, begin in marks[1:-1])


def streams(trace):
    """One line per stream and kind of kernel of a trace of the profiler."""
    times = defaultdict(list)
    for one in trace["traceEvents"]:
        if one.get("cat") == "kernel":
            kind = next(kind for kind, name in KINDS.items() if re.search(name, one["name"], re.I))
            times[one["args"]["stream"], kind].append((one["ts"], one["ts"] + one["dur"]))
    for (stream, kind), spans in sorted(times.items()):
        others = [one for (other, _), found in times.items() if other != stream for one in found]
        both = total(spans) + total(others) - total(spans + others)
        yield (
            f"stream {stream:3} | {kind:15} | {len(spans):5} kernels | "
            f"{total(spans) / 1e3:7.2f} ms, {both / 1e3:6.2f} of it beside another stream"
        )


def total(spans):
    """Microseconds in which at least one of the spans runs."""
    whole, until = 0, 0
    for start, end in sorted(spans):
        whole += max(0, end - max(start, until))
        until = max(until, end)
    return whole


def remembered(trainer, source, targets):
    """One step: the allocator's events, and when each phase began."""
    marks = []

    def mark(phase):
        torch.accelerator.synchronize()
        marks.append((phase, time.time() * 1e6))

    torch.cuda.memory._record_memory_history(stacks="python")
    mark("forward")
    loss = trainer._loss(source, targets) / targets.numel()
    mark("backward")
    loss.backward()
    mark("optimizer")
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()
    mark("end")
    torch.cuda.memory._dump_snapshot(f"memory{dist.get_rank()}.pickle")
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    return events, marks


def traced(trainer):
    """The trace of one step, as the profiler writes it."""
    with torch.profiler.profile() as profiler:
        trainer._run_step(4)
        torch.accelerator.synchronize()
    path = f"step{dist.get_rank()}.json"
    profiler.export_chrome_trace(path)
    with open(path) as file:
        return json.load(file)


def main():
    size, *flags = sys.argv[1:]
    size, flags = int(size), {flag.removeprefix("--"): True for flag in flags}
    batch = {"batch_size": size * dist.get_world_size(), "micro_batch_size": size}
    trainer = gpt2.trainer(gpt2.config(precision="bf16", **batch, **flags))
    for step in range(3):  # the first one compiles and makes AdamW's averages
        trainer._run_step(step)
    trainer.optimizer.zero_grad()
    first = torch.cuda.memory_allocated()
    lines = memory(*remembered(trainer, *trainer.train_data[3][0]), first)
    lines = [*lines, *streams(traced(trainer))]
    if dist.get_rank() == 0:
        print("\n".join(lines))


if __name__ == "__main__":
    if not utils.num_gpus():
        sys.exit("this needs a GPU; docs.labs.gpu_memory counts without one")
    ddp_setup()
    main()
    dist.barrier()
    dist.destroy_process_group()

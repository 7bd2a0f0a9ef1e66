"""Run a function in two CPU processes over gloo. The scripts of this folder use it.

The processes are forked, so torch is imported only once and a script takes a
second or two. Do this in small CPU scripts only: CUDA does not work in a forked
process. The lessons spawn their processes instead.
"""

import importlib
import multiprocessing
import signal
import sys
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

FIXED = sys.argv[1:] == ["fixed"]


def say(rank, text):
    lines = (f"[rank{rank}]: {line}\n" for line in text.splitlines())
    sys.stdout.write("".join(lines))
    sys.stdout.flush()


def _hold(ports):
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    ports.put(store.port)
    signal.pause()  # keep the store alive until run() terminates this


def _start(rank, main, port, world_size, timeout):
    torch.seed()  # otherwise the forked ranks draw the same random numbers
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=timeout)
    try:
        main(rank)
        dist.barrier()
    except Exception as error:
        say(rank, "".join(traceback.format_exception_only(error)))
        sys.exit(1)
    dist.destroy_process_group()


def run(main, world_size=2, timeout=30):
    """Call `main(rank)` in each process. If one fails, exit with status 1.

    `timeout`: seconds that a collective waits for the other ranks (fixed: 30).
    """
    if "DDP" in main.__globals__:
        importlib.import_module("torch._dynamo")  # or each rank does
    timeout = timedelta(seconds=30 if FIXED else timeout)
    context = multiprocessing.get_context("fork")
    # The store has threads, and a fork could copy a lock that one of them
    # holds. So a process of its own holds the store.
    ports = context.SimpleQueue()
    holder = context.Process(target=_hold, args=(ports,), daemon=True)
    holder.start()
    arguments = main, ports.get(), world_size, timeout
    ranks = [
        context.Process(target=_start, args=(rank, *arguments), daemon=True)
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    holder.terminate()
    for rank, process in enumerate(ranks):
        if process.exitcode < 0:
            say(rank, f"ended by {signal.Signals(-process.exitcode).name}")
    if any(process.exitcode for process in ranks):
        sys.exit(1)

"""Two processes on a CPU, over gloo, for the scripts of this folder.

They are forked, so that torch is imported once and a script takes a second or
two. That is for small CPU scripts only: CUDA does not survive a fork, and the
lessons spawn.
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
    signal.pause()  # until it is terminated: the store lives as long as this


def _start(rank, main, port, world_size, timeout):
    torch.seed()  # forked, both would draw the same random numbers
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        store=store, rank=rank, world_size=world_size, timeout=timeout)
    try:
        main(rank)
        dist.barrier()
    except Exception as error:
        say(rank, "".join(traceback.format_exception_only(error)))
        sys.exit(1)
    dist.destroy_process_group()


def run(main, world_size=2, timeout=30):
    """`main(rank)` in each process; ends the script if any of them failed.

    `timeout`: seconds that a collective waits for the others (if fixed, 30).
    """
    if "DDP" in main.__globals__:
        importlib.import_module("torch._dynamo")  # DDP would, in each process
    timeout = timedelta(seconds=30 if FIXED else timeout)
    context = multiprocessing.get_context("fork")
    # The store has threads: were it held here, a fork might copy a lock that one of them has.
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

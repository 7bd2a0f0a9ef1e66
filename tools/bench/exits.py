"""How often does a gloo process die while it exits? One row for each way to end a script.

    python tools/bench/exits.py 200 --load 4

gloo's threads may hold the last reference to a Python object. One that drops it while the
interpreter finalises is unwound by the C library, and the process ends with SIGABRT: `terminate
called without an active exception`. `destroy_process_group` joins those threads, but only if nobody
else holds the group. The constructors of optimizers and of DDP import `torch._dynamo`, and with it
functions that take `group.WORLD` as a default argument, as `torch.distributed.nn.functional` has:
imported after `init_process_group`, they hold it.

To afford hundreds of exits, torch is imported once and every rank is a fork that trains a few
steps and then leaves through the whole finalisation of its interpreter, as a script does.
"""

import argparse
import collections
import os
import shutil
import sys
import tempfile
import time

import torch
import torch._dynamo  # what DDP imports at first use, for the forks to share ...
import torch.distributed as dist
import torch.distributed.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel as DDP

ENDS = {
    # name: (imported before the group, barrier, destroy)
    "late import, no destroy": (False, False, False),
    "late import, destroy": (False, False, True),
    "late import, barrier, destroy": (False, True, True),
    "early import, destroy": (True, False, True),
    "early import, barrier, destroy (the scripts)": (True, True, True),
}


def train(steps=20):
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    totals = torch.zeros(2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(32, 20)).square().mean()
        loss.backward()
        optimizer.step()
        totals += loss.detach()
    dist.all_reduce(totals)


def rank_main(rank, store, early, barrier, destroy):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    if not early:
        # ... and what that import would leave behind if it came only now.
        functional.gather.__defaults__ = (0, dist.group.WORLD)
    train()
    if barrier:
        dist.barrier()
    if destroy:
        dist.destroy_process_group()


def fork(function, *args):
    """Start `function` in a child that ends as a script does: by finalising its interpreter."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        function(*args)
        raise SystemExit  # nothing on the way up may clean up what the parent still uses
    return pid


def busy(parent):
    while os.getppid() == parent:
        sum(range(100_000))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", type=int, nargs="?", default=200, help="of two ranks, for each row")
    parser.add_argument("--load", type=int, default=0, help="busy processes beside them")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for _ in range(args.load):
        fork(busy, os.getpid())
    print(f"torch {torch.__version__}, {os.cpu_count()} cores, {args.load} busy processes")
    folder = tempfile.mkdtemp()
    for name, (early, barrier, destroy) in ENDS.items():
        ends, start = collections.Counter(), time.perf_counter()
        for run in range(args.runs):
            store = f"{folder}/{early:d}{barrier:d}{destroy:d}{run}"
            pids = [fork(rank_main, rank, store, early, barrier, destroy) for rank in (0, 1)]
            ends.update(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
        bad = ends.total() - ends[0]
        seconds = time.perf_counter() - start
        print(f"{name:45} {bad:3} of {ends.total()} exits bad {dict(ends)} {seconds:.0f} s")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()

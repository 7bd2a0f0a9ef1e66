"""What one process does for the others. Every rank gets its result, or its error."""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import LIMIT, ROOT, without_gloo

# Two nodes whose ranks alternate, and a process group with a short timeout.
SCRIPT = """
import os, platform, sys, time
from datetime import timedelta
import torch.distributed as dist
from mingpt.once import run_on_main, run_once_per_node

rank = int(os.environ["RANK"])
platform.node = lambda: f"node{rank % 2}"
os.environ["LOCAL_RANK"] = str(rank // 2)

def slow():
    time.sleep(5 if rank == 0 else 0)
    return rank

def fail(at):
    if rank == at:
        raise ValueError(f"no text at {at}")

def hold():
    error = ValueError("has a file")
    error.file = sys.stdout  # no pickle can send it
    raise error

dist.init_process_group("gloo")
dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3))  # once all have met
sys.stdout.write(f"{rank} has {run_once_per_node(slow)}\\n")
sys.stdout.write(f"{rank} got {run_on_main(slow)}\\n")
for run, at in (run_once_per_node, 1), (run_on_main, 0):
    try:
        run(fail, at)
    except ValueError as error:
        sys.stdout.write(f"{rank} caught {error}\\n")
try:
    run_on_main(hold)
except RuntimeError as error:
    sys.stdout.write(f"{rank} caught {error}\\n")
dist.barrier()
dist.destroy_process_group()
"""


# Two nodes with one process each, and each with its own file under the same name.
TEXTS = """
import os, platform, sys
import torch.distributed as dist
from mingpt import data
from mingpt.config import Config
from guard import UserError

rank = int(os.environ["RANK"])
platform.node = lambda: f"node{rank}"
os.environ["LOCAL_RANK"] = "0"
os.mkdir(f"node{rank}")
os.chdir(f"node{rank}")
with open("text", "w") as file:
    file.write("a text of many letters " * (20 + rank))
dist.init_process_group("gloo")
try:
    data.load(Config(data="text"))
except UserError as mistake:
    sys.stdout.write(f"{rank}: {mistake}\\n")
dist.barrier()
dist.destroy_process_group()
"""


FAILS = """
import os, sys
import torch.distributed as dist
from mingpt.once import run_on_main

calls = []
dist.init_process_group("gloo")
sys.excepthook = lambda kind, error, _: sys.stdout.write(f"{os.environ['RANK']}: {error!r}\\n")
run_on_main(calls.remove, 1)
sys.stdout.write("trains on")
"""


def said(script, nproc, folder, status=0):
    """The lines that `nproc` processes of torchrun print, sorted."""
    (folder / "script.py").write_text(script)
    torchrun = Path(sys.executable).parent / "torchrun"
    ended = subprocess.run(
        [torchrun, "--standalone", f"--nproc_per_node={nproc}", "script.py"],
        cwd=folder, capture_output=True, text=True, timeout=LIMIT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == status, ended.stderr
    return sorted(without_gloo(ended.stdout.splitlines()))


def test_result_and_error_reach_every_rank_however_long_it_takes(tmp_path):
    assert said(SCRIPT, 4, tmp_path) == [
        line
        for rank in range(4)
        for line in (
            f"{rank} caught ValueError('has a file')",
            f"{rank} caught no text at 0",
            f"{rank} caught no text at 1",
            f"{rank} got 0",
            f"{rank} has {rank % 2}",
        )
    ]


def test_nodes_with_different_texts(tmp_path):
    message = "rank 1 has another text than rank 0: give all nodes the same file as --data"
    assert said(TEXTS, 2, tmp_path) == [f"0: {message}", f"1: {message}"]


def test_every_rank_ends_if_the_main_one_fails(tmp_path):
    lines = said(FAILS, 4, tmp_path, status=1)
    errors = [f"{rank}: ValueError('list.remove(x): x not in list')" for rank in range(4)]
    assert lines and set(lines) <= set(errors)  # torchrun may end a rank before it prints

"""What one process does for all: its result, or its error, is everybody's."""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

# Two nodes, to which a launcher has dealt out the ranks in turn; the group has little patience.
SCRIPT = """
import os, platform, sys, time
from datetime import timedelta
import torch.distributed as dist
from mingpt.once import run_on_main

rank = int(os.environ["RANK"])
platform.node = lambda: f"node{rank % 2}"
os.environ["LOCAL_RANK"] = str(rank // 2)

def slow():
    time.sleep(5 if rank == 0 else 0)
    return rank

def fail():
    if rank == 1:
        raise ValueError("no such text")

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
sys.stdout.write(f"{rank} has {run_on_main(slow)}\\n")
try:
    run_on_main(fail)
except ValueError as error:
    sys.stdout.write(f"{rank} caught {error}\\n")
dist.barrier()
dist.destroy_process_group()
"""


def test_result_and_error_reach_every_rank_however_long_it_takes(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = Path(sys.executable).parent / "torchrun"
    ended = subprocess.run(
        [torchrun, "--standalone", "--nproc_per_node=4", "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = sorted(ended.stdout.splitlines())
    assert said == [
        line
        for rank in range(4)
        for line in (f"{rank} caught no such text", f"{rank} has {rank % 2}")
    ]

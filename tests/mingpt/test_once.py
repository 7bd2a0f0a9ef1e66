"""What one process does for all: its result, or its error, is everybody's."""

import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

SCRIPT = """
import os, sys
import torch.distributed as dist
from mingpt.once import run_on_main

def fail():
    raise ValueError("no such text")

dist.init_process_group("gloo")
sys.stdout.write(f'{dist.get_rank()} has {run_on_main(lambda: os.environ["RANK"])}\\n')
try:
    run_on_main(fail)
except ValueError as error:
    sys.stdout.write(f"{dist.get_rank()} caught {error}\\n")
dist.barrier()
dist.destroy_process_group()
"""


def test_result_and_error_reach_every_rank(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    torchrun = Path(sys.executable).parent / "torchrun"
    ended = subprocess.run(
        [torchrun, "--standalone", "--nproc_per_node=3", "script.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = sorted(ended.stdout.splitlines())
    assert said == [
        line for rank in range(3) for line in (f"{rank} caught no such text", f"{rank} has 0")
    ]

"""Run a command, and kill -9 one of torchrun's workers after some epochs or steps.

    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 \
    python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 \
    --max-restarts=3 multigpu_torchrun.py 50 10

Every line is marked with the seconds since the start. Linux only: it finds
the workers in /proc.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

kill_after = [int(epoch) for epoch in sys.argv[1].split(",")]
start = time.monotonic()
torchrun = subprocess.Popen(
    sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def say(line):
    print(f"{time.monotonic() - start:5.1f} s | {line}", flush=True)


def workers(parent):
    children = Path(f"/proc/{parent}/task/{parent}/children")
    for pid in children.read_text().split():
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        local_rank = [v for v in variables if v.startswith("LOCAL_RANK=")]
        if local_rank:
            yield local_rank[0], int(pid)
        else:  # perhaps torchrun
            yield from workers(pid)


for line in torchrun.stdout:
    # Of torchrun's own report: when it noticed, and nothing of its threads.
    if re.match("Epoch|Step|Resuming|E.*failed", line):
        say(line.rstrip())
    epoch = re.match(r"(?:Epoch|Step) +(\d+) \| (?:train )?loss", line)
    if epoch and kill_after and int(epoch[1]) == kill_after[0]:
        del kill_after[0]
        name, pid = max(workers(torchrun.pid))
        os.kill(pid, signal.SIGKILL)
        say(f"--- kill -9 of the worker with {name}")
sys.exit(torchrun.wait())

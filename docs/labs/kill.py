"""Run a command, and send one of its workers SIGKILL after some epochs or steps.

    . launch/restarts.sh
    python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 \
    multigpu_torchrun.py 50 10

Every output line begins with the seconds since the start. Linux only, because
the script finds the workers in /proc.
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
command = subprocess.Popen(
    sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
)


def say(line):
    print(f"{time.monotonic() - start:5.1f} s | {line}", flush=True)


def below(pid):
    """The pids of all descendants of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    for child in map(int, children.split()):
        yield child
        yield from below(child)


def started(pid):
    """A sort key: the start time of a process in clock ticks, then its pid."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]), pid


for line in command.stdout:
    # Shorten torchrun's log line about the failure: drop time and source line.
    line = re.sub(r"^E\d{4} .*\] failed", "torchrun: failed", line.rstrip())
    if re.match(r"Epoch|Step|Resuming|torchrun: |[\w.]+\.py: ", line):
        say(line)
    epoch = re.match(r"(?:Epoch|Step) +(\d+) \| (?:train )?loss", line)
    if epoch and kill_after and int(epoch[1]) == kill_after[0]:
        del kill_after[0]
        worker = max(below(command.pid), key=started)  # the newest one
        os.kill(worker, signal.SIGKILL)
        say("--- kill -9 of a worker")
sys.exit(command.wait())

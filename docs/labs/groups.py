"""Play two nodes that train without each other: each is a group with its own torchrun.

    python docs/labs/groups.py parallel.without_restart 3 3
    python docs/labs/groups.py parallel.without_restart 30 30 --batch_size 4 --lose 5

--lose 5 kills group 1 after its epoch 5, and deletes its folder. A second later,
an empty node starts group 1 again. Without --lose, no group trains alone.
--nproc_per_node is passed to torchrun; the default is 1. Each group runs in its
own folder. Every line begins with the seconds since the start and the group.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("--lose", type=int, help="the last epoch of group 1")
parser.add_argument("--nproc_per_node", type=int, default=1)
parser.add_argument("module")
options, arguments = parser.parse_known_args()
if not shutil.which("torchft_lighthouse"):
    sys.exit("torchft_lighthouse is not on the PATH: python3 tools/bootstrap.py groups installs it")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs `finally`
with socket.socket() as probe:
    probe.bind(("localhost", 0))
    address = f"localhost:{probe.getsockname()[1]}"
paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
VARIABLES = {"RUST_LOG": "error", "OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(paths)}
start = time.monotonic()
reached = threading.Event()


def say(number, text):
    sys.stdout.write(f"{time.monotonic() - start:5.1f} s  group {number} | {text}\n")
    sys.stdout.flush()


def end(process):
    """Kill a process and all that it has started."""
    family = [process, *process.children(recursive=True)]
    for one in family:
        one.kill()
    psutil.wait_procs(family)


class Group:
    def __init__(self, number):
        self.number = number
        folder = Path(f"group{number}")
        folder.mkdir(exist_ok=True)
        with open(folder / "stderr", "w") as log:
            self.torchrun = psutil.Popen(
                ["torchrun", "--standalone", f"--nproc_per_node={options.nproc_per_node}",
                 "-m", options.module, *arguments],
                cwd=folder,
                env=os.environ | VARIABLES | {
                    "TORCHFT_LIGHTHOUSE": f"http://{address}",
                    "NUM_REPLICA_GROUPS": "2",
                    "REPLICA_GROUP_ID": str(number),
                },
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        threading.Thread(target=self.read).start()

    def read(self):
        for line in self.torchrun.stdout:
            say(self.number, line.rstrip())
            ended = re.match(r"Epoch +(\d+) \| loss", line)
            # The group that starts later may begin with a later epoch.
            if self.number == 1 and options.lose and ended and int(ended[1]) >= options.lose:
                reached.set()


least = "1" if options.lose else "2"
print(f"+ torchft_lighthouse --min_replicas {least}", flush=True)
lighthouse = psutil.Popen(
    ["torchft_lighthouse", "--bind", address, "--min_replicas", least, "--join_timeout_ms", "1000"],
    env=os.environ | VARIABLES,
)
groups = []
try:
    groups += [Group(0), Group(1)]
    if options.lose:
        if not reached.wait(100):
            sys.exit(f"epoch {options.lose} was not reached in 100 s")
        say(1, "--- lost, with its disk")
        end(groups[1].torchrun)
        shutil.rmtree("group1")
        time.sleep(1)
        say(1, "--- an empty node takes its place")
        groups[1] = Group(1)
    status = [group.torchrun.wait(300) for group in groups]
finally:
    for process in [lighthouse, *(group.torchrun for group in groups)]:
        if process.is_running():
            end(process)
for number, failed in enumerate(status):
    if failed:
        print(f"group {number}: status {failed}", Path(f"group{number}/stderr").read_text()[-2000:])
sys.exit(any(status))

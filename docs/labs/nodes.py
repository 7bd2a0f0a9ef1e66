"""Play two nodes on one machine: two torchrun agents, each in its own folder.

    python docs/labs/nodes.py multinode.py 20 10
    python docs/labs/nodes.py --lose node2 multinode.py 40 10

--nproc_per_node is passed to torchrun; the default is 2.
--patience 10 stops everything with status 124 after 10 seconds without output.
--lose node2 kills the agent and the workers of node2 after epoch 15 and deletes
its folder. Then an empty node runs the same command in its place.
--lose node1 kills the node that --rdzv-endpoint names, and waits for node2.

Every output line begins with the seconds since the start and the node. Linux
only, because the script finds the processes of a node in /proc.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


def free_port():
    """A free port below the range from which the system hands out ports."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) != 0:
                return port


parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("--lose", choices=["node1", "node2"])
parser.add_argument("--patience", type=float, help="seconds without a line")
parser.add_argument("--nproc_per_node", type=int, default=2)
parser.add_argument("script")
parser.add_argument("args", nargs=argparse.REMAINDER)
options = parser.parse_args()
if not Path("/proc/self").exists():
    sys.exit("nodes.py needs Linux: it finds the processes of a node in /proc")

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # runs `finally`
start = time.monotonic()
port = free_port()
COMMAND = ["torchrun", "--nnodes=2", str(Path(options.script).resolve()), *options.args]
ENVIRONMENT = {
    "LAUNCH": str(Path(__file__).resolve().parents[2] / "launch"),
    "NPROC": str(options.nproc_per_node),
    "ENDPOINT": f"localhost:{port}",
}
print(f"+ NPROC={options.nproc_per_node} ENDPOINT=localhost:{port} . launch/torchrun_env.sh")
print("+ torchrun --nnodes=2", options.script, *options.args)
reached = threading.Event()
last_line = None


def say(name, text):
    global last_line
    last_line = time.monotonic()
    sys.stdout.write(f"{time.monotonic() - start:5.1f} s  {name} | {text}\n")
    sys.stdout.flush()


class Node:
    def __init__(self, name):
        self.name = name
        Path(name).mkdir(exist_ok=True)
        self.agent = subprocess.Popen(
            ["sh", "-c", '. "$LAUNCH/torchrun_env.sh" && exec "$@"', "sh", *COMMAND],
            cwd=name,
            env=os.environ | ENVIRONMENT | {"NODE": f"{name}:{port}"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.unsaid = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.agent.stdout:
            if line.startswith(("Epoch", "Resuming", "rank", "multinode")):
                say(self.name, line.rstrip())
            else:
                self.unsaid.append(line)
            if line.startswith("Epoch 15 | loss"):
                reached.set()

    def kill(self):
        while found := list(self.processes()):  # again: some may be new
            for process in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            self.agent.poll()
        self.agent.wait()
        self.reader.join()

    def processes(self):
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # ended, or not ours
                environment = (folder / "environ").read_bytes()
                if f"NODE={self.name}:{port}\0".encode() in environment:
                    yield int(folder.name)


def wait_for_port(node):
    while node.agent.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) == 0:
                return
        time.sleep(0.1)


nodes = {}
try:
    nodes["node1"] = Node("node1")
    wait_for_port(nodes["node1"])  # node1 hosts the --rdzv-endpoint
    nodes["node2"] = Node("node2")
    if options.lose:
        if not reached.wait(100):
            sys.exit("epoch 15 was not reached in 100 s")
        lost = nodes.pop(options.lose)
        lost.kill()
        shutil.rmtree(lost.name)
        say(lost.name, "--- lost, with its disk")
        if lost.name == "node2":
            say("node2", "--- an empty one takes its place")
            nodes["node2"] = Node("node2")
    while any(node.agent.poll() is None for node in nodes.values()):
        time.sleep(0.1)
        waited = time.monotonic() - last_line if last_line else 0
        if options.patience and waited > options.patience:
            print(f"nothing for {options.patience:.0f} s: ended")
            sys.exit(124)
        if any(node.agent.poll() for node in nodes.values()):
            break  # one agent has failed; the other would wait for it
    failed = [node for node in nodes.values() if node.agent.poll()]
finally:
    for node in nodes.values():
        if node.agent.poll() is None:
            node.kill()
        node.reader.join()
for node in failed:
    print(f"{node.name}: status {node.agent.returncode}")
    print("".join(node.unsaid[-20:]).rstrip())
sys.exit(bool(failed))

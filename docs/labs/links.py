"""Train on one node and on two, over links of several speeds and latencies.

    sudo env PATH=$PATH python -m docs.labs.links tools/bench/results/links.txt

The nodes are those of tools/cluster, which needs Linux and root. Without them,
this prints the file, which has what it printed earlier. A step is that of
multinode.py, with a larger model: 20 -> 490 -> 490 -> 1. Times are medians.
"predicted" is the step of both nodes without messages, plus the all-reduce of
docs/theory/step_time.py, with twice the latency, because gloo sends a message
only after the receiver's message that it is ready.
"""

import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import multinode
import utils
from docs.labs.box import on_two_nodes
from docs.theory.step_time import all_reduce

ROOT = Path(__file__).resolve().parents[2]
WIDTH, BATCH = 490, 32
SIZE = 4 * (21 * WIDTH + (WIDTH + 1) * WIDTH + WIDTH + 1)  # bytes of the gradients
RATES = {"no limit": None, "1 Gbit/s": 1000, "100 Mbit/s": 100, "10 Mbit/s": 10}
LATENCIES = 0, 1, 10  # milliseconds


def worker():
    """Per line of the input, "batch steps sends": train, and print the seconds per step."""
    multinode.ddp_setup()
    data = utils.MyTrainDataset()
    model = torch.nn.Sequential(
        torch.nn.Linear(20, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    trainer = multinode.Trainer(model, None, optimizer, 1, "no.pt")
    ddp = trainer.model
    for batch, steps, sends in (map(int, line.split()) for line in sys.stdin):
        trainer.model = ddp if sends else ddp.module
        chosen = torch.arange(batch) % len(data)
        samples, times = (data.features[chosen], data.targets[chosen]), []
        for _ in range(3 + steps):
            start = time.perf_counter()
            trainer._run_batch(*samples)
            times.append(time.perf_counter() - start)
        print(statistics.median(times[3:]), flush=True)  # at first TCP sends packets twice
    dist.destroy_process_group()


def start(cluster):
    """A function that makes the first of the nodes, or both, train."""
    shared = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
    shared |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LOCAL_RANK": "0"}
    shared |= {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # nodes have addresses without names
    words = [sys.executable, "-m", "docs.labs.links"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    workers = [
        cluster.run(name, words, shared | {"RANK": str(rank)}, text=True, **pipes)
        for rank, name in enumerate(cluster.nodes)
    ]

    def step(nodes, batch, steps, sends):
        """Seconds per step."""
        for one in workers[:nodes]:
            one.stdin.write(f"{batch} {steps} {sends:d}\n")
            one.stdin.flush()
        return max(float(one.stdout.readline()) for one in workers[:nodes])

    return step


def row(name, samples, seconds, predicted=None):
    cells = [f"{samples:7,}", f"{seconds * 1e3:8.1f}", f"{samples / seconds:9,.0f}"]
    cells.append(f"{samples / predicted:9,.0f}" if predicted else " " * 9)
    print(f"{name:17} | {' | '.join(cells)}".rstrip(), flush=True)


def measure(cluster):
    step = start(cluster)
    print(f"{SIZE:,} bytes of gradients")
    print(f"{'':17} | samples |  ms/step | samples/s | predicted")
    row("one node", BATCH, step(1, BATCH, 50, False))
    for (name, rate), latency in itertools.product(RATES.items(), LATENCIES):
        cluster.limit("node2", f"{rate}mbit" if rate else "", f"{latency}ms" if latency else "")
        bandwidth = rate * 1e6 / 8 if rate else float("inf")
        predicted = step(2, BATCH, 40, False)
        predicted += all_reduce(SIZE, 2, 2 * latency / 1e3, bandwidth)
        seconds = step(2, BATCH, max(5, min(40, int(1 / predicted))), True)
        row(f"{name + ',':11} {latency:2} ms", 2 * BATCH, seconds, predicted)
    print("\nlarger batches, over 100 Mbit/s and 1 ms")
    cluster.limit("node2", "100mbit", "1ms")
    for batch in (32, 512, 8192):
        row("one node", batch, step(1, batch, 3, False))
        predicted = step(2, batch, 3, False) + all_reduce(SIZE, 2, 2e-3, 100e6 / 8)
        row("two nodes", 2 * batch, step(2, batch, 5, True), predicted)


if __name__ == "__main__":
    worker() if "RANK" in os.environ else on_two_nodes(measure, sys.argv[1])

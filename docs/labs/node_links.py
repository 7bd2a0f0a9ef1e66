"""Count what FSDP and HSDP send between two nodes, and train over a slow link.

    sudo env PATH=$PATH python -m docs.labs.node_links tools/bench/results/node_links.txt

Each node has two processes. The nodes are those of tools/cluster, which needs
Linux and root. Without them, this prints the file, which has what it printed
earlier. The bytes are those that node2 sends per step, counted by its kernel.
"""

import re
import subprocess
import sys
from pathlib import Path

from docs.labs.box import on_two_nodes

ROOT = Path(__file__).resolve().parents[2]
STEPS = 10
START = ["--nnodes=2", "--nproc_per_node=2", "--master-addr=node1", "--master-port=29500"]
GPT = f"--data {ROOT}/LICENSE --model gpt-nano --block_size 16 --save_every 99".split()


def train(cluster, lesson, steps):
    """Bytes that node2 sends in all, and tokens per second in the last `STEPS` steps."""
    shared = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    nodes, before = [], sent(cluster)
    for rank, name in enumerate(cluster.nodes):
        folder = cluster.folder(name)
        words = [sys.executable, "-m", "torch.distributed.run", f"--node-rank={rank}", *START]
        words += ["-m", f"parallel.{lesson}", *GPT, f"--cache={folder}/data"]
        words += [f"--total_steps={steps}", f"--eval_every={steps}", f"--log_every={STEPS}"]
        (folder / f"{lesson}.pt").unlink(missing_ok=True)
        nodes.append(cluster.run(name, words, shared, text=True, stdout=subprocess.PIPE))
    said = [node.communicate()[0] for node in nodes]
    if any(node.returncode for node in nodes):
        sys.exit(f"{lesson} failed over two nodes:\n{''.join(said)}")
    return sent(cluster) - before, re.findall(r"([\d,]+) tokens/s", said[0])[-1]


def sent(cluster):
    lines = cluster.output("node2", ["cat", "/proc/net/dev"]).splitlines()
    return sum(int(line.split()[9]) for line in lines if ":" in line and "lo:" not in line)


def measure(cluster):
    print("     | bytes per step | tokens/s | tokens/s over 10 Mbit/s")
    for lesson in ("fsdp", "hsdp"):
        cluster.limit("node2")
        first, _ = train(cluster, lesson, STEPS)  # connecting and saving send as well
        size, fast = train(cluster, lesson, 2 * STEPS)
        cluster.limit("node2", "10mbit")
        _, slow = train(cluster, lesson, 2 * STEPS)
        print(f"{lesson} | {(size - first) / STEPS:14,.0f} | {fast:>8} | {slow:>8}", flush=True)


if __name__ == "__main__":
    on_two_nodes(measure, sys.argv[1])

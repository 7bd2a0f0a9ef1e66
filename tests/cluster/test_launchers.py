"""The same file, byte for byte, by every launcher that is here: the same weights."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.faults import same
from tests.processes import ROOT, STANDALONE, Process

ARGS = ["multinode.py", "4", "2", "--batch_size", "32"]
LIMIT = 180  # seconds; a bound on hangs, not a measure of speed
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
HASH = hashlib.sha256((ROOT / "multinode.py").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    """The checkpoint of one node with four processes."""
    folder = tmp_path_factory.mktemp("one-node")
    with Process("multinode", *ARGS[1:], cwd=folder, nproc=4, launcher=STANDALONE) as process:
        assert process.wait(LIMIT) == 0, process.tail
    return torch.load(folder / "multinode.pt")


@pytest.fixture
def start(cluster):
    """Runs a shell line on both nodes, each with its number in $i: what each printed."""
    nodes = cluster(2)
    for node in nodes.nodes:
        for file in ("multinode.py", "utils.py"):
            shutil.copy(ROOT / file, nodes.folder(node))

    def run(line):
        running = [
            nodes.run(
                node, ["sh", "-ec", line], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, env={"PATH": PATH, "i": str(number), "launch": str(ROOT / "launch"),
                                "NNODES": "2", "NPROC": "2"},
            )
            for number, node in enumerate(nodes.nodes)
        ]  # fmt: skip
        said = [process.communicate(timeout=LIMIT)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0], "\n".join(said)
        return said

    run.nodes = nodes
    return run


LINES = {
    "c10d": "ENDPOINT=node1:29500 sh $launch/torchrun_c10d.sh",
    "environment": "export ENDPOINT=node1:29500; . $launch/torchrun_env.sh; torchrun --nnodes=2",
    "static": "NODE_RANK=$i MASTER_ADDR=node1 sh $launch/torchrun_static.sh",
    "legacy": "NODE_RANK=$i MASTER_ADDR=node1 sh $launch/distributed_launch.sh",
}


@pytest.mark.parametrize("name", LINES)
def test_the_same_weights_by_every_launcher(name, start, one_node):
    said = start(f"{LINES[name]} {' '.join(ARGS)}")
    files = [start.nodes.folder(node) / "multinode.pt" for node in start.nodes.nodes]
    assert same(*files)
    weights = torch.load(files[0])["model"]
    for key, value in one_node["model"].items():
        assert (weights[key] - value).abs().max() <= 1e-6, key
    assert sum("Epoch  4 | loss" in text for text in said) == 1
    for node in start.nodes.nodes:
        script = start.nodes.folder(node) / "multinode.py"
        assert hashlib.sha256(script.read_bytes()).hexdigest() == HASH


def test_hello_names_every_rank(start):
    said = "".join(start("ENDPOINT=node1:29500 sh $launch/torchrun_c10d.sh $launch/hello.py"))
    ranks = said[said.index("4 ranks over gloo") :].split("\n")[0]
    assert sorted(one.split()[2] for one in ranks.partition(": ")[2].split(", ")) == [
        "node1:0", "node1:1", "node2:0", "node2:1",
    ]  # fmt: skip
    assert "sum of the ranks: 6, expected 6" in said


@pytest.mark.parametrize("missing", ["NNODES", "ENDPOINT"])
def test_a_variable_that_is_missing_is_named(missing):
    env = {"NNODES": "2", "ENDPOINT": "node1:29500", "PATH": PATH}
    del env[missing]
    ran = subprocess.run(
        ["sh", str(ROOT / "launch" / "torchrun_c10d.sh"), "multinode.py"], env=env, text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode and missing in ran.stderr and "as " in ran.stderr

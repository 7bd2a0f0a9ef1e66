"""Every launcher here runs the same file, byte for byte, and gets the same weights."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading

import pytest

from tests.cluster.jobs import PATH, SHORT, Command, close, lay
from tests.faults import same
from tests.processes import ROOT


@pytest.fixture
def start(cluster):
    """Runs a shell line on both nodes, with the node's number in $i. Returns what each printed."""
    nodes = cluster(2)
    for node in nodes.nodes:
        lay(nodes.folder(node))

    def run(line):
        env = {"launch": str(ROOT / "launch"), "NNODES": "2", "NPROC": "2"}
        running = [
            Command(nodes, node, ["sh", "-ec", line], {**env, "i": str(number)})
            for number, node in enumerate(nodes.nodes)
        ]
        for command in running:
            assert command.wait() == 0, command.out
        return [command.out for command in running]

    run.nodes = nodes
    return run


LINES = {  # torchrun_c10d.sh runs in the tests of the schedulers, which start it
    "environment": "export LAUNCH=$launch ENDPOINT=node1:29500; . $LAUNCH/torchrun_env.sh; "
    "torchrun --nnodes=2",
    "static": "NODE_RANK=$i MASTER_ADDR=node1 sh $launch/torchrun_static.sh",
    "legacy": "NODE_RANK=$i MASTER_ADDR=node1 sh $launch/distributed_launch.sh",
}


@pytest.mark.parametrize("name", LINES)
def test_the_same_weights_by_every_launcher(name, start, one_node):
    said = start(f"{LINES[name]} {' '.join(SHORT)}")
    files = [start.nodes.folder(node) / "multinode.pt" for node in start.nodes.nodes]
    assert same(*files) and close(files[0], one_node)
    assert sum("Epoch  4 | loss" in text for text in said) == 1


def test_ranks_that_see_one_gpu_each():
    """As with srun --gpus-per-task: LOCAL_RANK would name a missing GPU."""
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "PATH": PATH}
    words = ["sh", str(ROOT / "launch" / "ranks.sh"), "echo", "started"]
    for visible, status in (("1", 2), ("GPU-8f", 2), ("0,1", 0), ("", 0), ("-1", 0)):
        env |= {"CUDA_VISIBLE_DEVICES": visible, "MASTER_ADDR": "node1"}
        ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == status and (ran.stdout == "started\n") == (not status)
        assert ("by --gpus-per-node in place of" in ran.stderr) == bool(status)


def before(endpoint, **env):
    """Status and output of launch/before.py, without what it says after five seconds."""
    words = [sys.executable, str(ROOT / "launch" / "before.py"), endpoint]
    env = {**os.environ, "JOIN_TIMEOUT": "3", **env}
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    return ran.returncode, re.sub("waiting for .*\n", "", ran.stdout + ran.stderr)


def test_which_node_hosts_the_store():
    """At localhost, the first agent of the machine hosts it, and the others do not."""
    assert before(f"{socket.gethostname()}:1") == (0, "is_host=1\n")
    assert before("localhost:1") == (0, "")
    said = "nowhere.invalid has no address here yet: torchrun will ask again\n"
    assert before("nowhere.invalid:1") == (0, said)


def test_an_endpoint_where_another_program_answers_is_left_to_torchrun():
    """torchrun then names the mistake."""
    with socket.create_server(("localhost", 0)) as sshd:
        thread = threading.Thread(target=answer, args=(sshd,), daemon=True)
        thread.start()
        assert before(f"localhost:{sshd.getsockname()[1]}", JOIN_TIMEOUT="20")[0] == 0


def answer(server):
    with contextlib.suppress(OSError):  # until it is closed
        while True:
            server.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n")

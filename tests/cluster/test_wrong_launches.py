"""Launches that cannot work end and say why, within the time that the page gives."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.cluster.conftest import POSSIBLE
from tests.cluster.jobs import SHORT, Command, lay
from tests.processes import ROOT
from tools.cluster import Cluster

WAIT = 6  # seconds, as JOIN_TIMEOUT
LIMIT = 3 * WAIT + 180  # seconds until it must have ended; a busy machine takes a minute to start
HOLD = "import socket, time; s = socket.create_server(('', 29500)); print(1, flush=True)\n"
SET = {"NNODES": "2", "ENDPOINT": "node1:29500", "MASTER_ADDR": "node1", "MAX_RESTARTS": "0"}


class Wrong(NamedTuple):
    recipe: str
    one: dict | None  # variables on node1; None: start nothing there
    two: dict | None
    says: str | tuple  # a regular expression, or one per node
    taken: bool = False  # whether another program has the port


CASES = {
    "no such name": Wrong(
        "torchrun_c10d", {"ENDPOINT": "nodeX:29500"}, {"ENDPOINT": "nodeX:29500"},
        "RendezvousConnectionError",
    ),
    "nobody at the endpoint": Wrong("torchrun_c10d", None, {}, "RendezvousConnectionError"),
    "a node never comes": Wrong("torchrun_c10d", {}, None, "RendezvousTimeoutError"),
    "2 and 3 nodes": Wrong(
        "torchrun_c10d", {}, {"NNODES": "3"}, "Rendezvous(Timeout|Connection)Error"
    ),
    "the port is taken": Wrong(
        "torchrun_c10d", {}, {}, "something listens at node1:29500, but is no torchrun", taken=True,
    ),
    "no such interface": Wrong(
        "torchrun_c10d", {}, {"GLOO_SOCKET_IFNAME": "eth7"},
        ("RendezvousTimeoutError", "GLOO_SOCKET_IFNAME is eth7, but node2 has only lo, eth0"),
    ),
    "the same number twice": Wrong(
        "torchrun_static", {"NODE_RANK": "0"}, {"NODE_RANK": "0"},
        # node1 has the store: if node1 ends first, node2 says that its store is gone.
        ("wait timeout after", "wait timeout after|Connection was likely closed"),
    ),
    "a numbered node never comes": Wrong(
        "torchrun_static", {"NODE_RANK": "0"}, None, "1/2 clients joined"
    ),
}  # fmt: skip


def launched(case):
    """Exit status and output of each node."""
    with Cluster(2) as nodes:
        if case.taken:
            code = f"{HOLD}time.sleep(999)"
            holder = nodes.run("node1", [sys.executable, "-c", code], stdout=subprocess.PIPE)
            assert holder.stdout.readline()
        running = {}
        for node, env in zip(nodes.nodes, (case.one, case.two), strict=True):
            if env is not None:
                lay(nodes.folder(node))
                words = ["sh", str(ROOT / "launch" / f"{case.recipe}.sh"), *SHORT]
                settings = {**SET, "JOIN_TIMEOUT": str(WAIT), **env}
                running[node] = Command(nodes, node, words, settings)
        return [(command.wait(LIMIT), command.out) for command in running.values()]


@pytest.fixture(scope="module")
def answers():
    """Launch all cases at once, because they mostly wait."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    with ThreadPoolExecutor(len(CASES)) as pool:
        yield {name: pool.submit(launched, case) for name, case in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_launch_that_cannot_work_ends(name, answers):
    found = answers[name].result()
    assert found and all(status for status, _ in found), found
    says = CASES[name].says
    patterns = [says] * len(found) if isinstance(says, str) else says
    for (_, said), pattern in zip(found, patterns, strict=True):
        assert re.search(pattern, said) and "| loss" not in said, said

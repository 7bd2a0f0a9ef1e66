"""A limited link is never faster than its limit, whatever the machine's speed."""

import subprocess
import sys

import pytest

from tests.processes import ROOT
from tools.cluster import Cluster
from tools.cluster.cluster import BURST

SIZE = 1_000_000
LISTEN = """import socket
with socket.create_server(("", 5000)) as server:
    print("listens", flush=True)
    while True:
        with server.accept()[0] as other:
            while other.recv(65536):
                pass
            other.send(b".")
"""
# Its clock ends when the other has received everything.
SEND = """import socket, sys, time
start = time.monotonic()
with socket.create_connection((sys.argv[1], 5000)) as other:
    other.sendall(bytes(int(sys.argv[2])))
    other.shutdown(socket.SHUT_WR)
    assert other.recv(1) == b"."
print(time.monotonic() - start)
"""


@pytest.fixture
def nodes(cluster):
    made = cluster(2)
    made.serve([(name, [sys.executable, "-c", LISTEN]) for name in made.nodes])
    ready = [made.place / f"{name}.log" for name in made.nodes]
    made.until(lambda: all("listens" in log.read_text() for log in ready), "nothing listens", 60)
    return made


def seconds(nodes: Cluster, sender: str, receiver: str, size: int = SIZE) -> float:
    words = [sys.executable, "-c", SEND, nodes.address(receiver), str(size)]
    return float(nodes.output(sender, words))


def test_a_limit_holds_both_ways_and_a_second_one_replaces_it(nodes):
    for megabits in (20, 10):
        nodes.limit("node2", rate=f"{megabits}mbit")
        least = (SIZE - BURST) * 8 / (megabits * 1e6)
        assert seconds(nodes, "node1", "node2") >= least
        assert seconds(nodes, "node2", "node1") >= least


def test_every_packet_comes_later_both_ways(nodes):
    """To connect takes a packet each way, and so does a byte with its answer."""
    nodes.limit("node2", delay="250ms")
    for sender, receiver in (("node1", "node2"), ("node2", "node1")):
        # Twice, since at first the nodes also ask for each other's address.
        assert min(seconds(nodes, sender, receiver, 1) for _ in range(2)) >= 4 * 0.25


def test_limits_are_lifted_and_a_new_node_has_none(nodes):
    nodes.limit("node2", "32kbit", "3000ms")  # on which SIZE would take four minutes
    nodes.limit("node2")
    assert seconds(nodes, "node1", "node2") < 60
    nodes.limit("node2", "32kbit", "3000ms")
    nodes.replace("node2")
    assert not nodes._relays
    assert seconds(nodes, "node2", "node1") < 60


def test_where_no_nodes_are_possible_the_lab_prints_what_was_recorded():
    """Here without the program ip, as on other systems than Linux."""
    recorded = "tools/bench/results/links.txt"
    ran = subprocess.run(
        [sys.executable, "-m", "docs.labs.links", recorded], cwd=ROOT, env={"PATH": ""},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    first, _, rest = ran.stdout.partition("\n\n")
    assert first.startswith("No nodes here, so this was measured earlier.")
    assert rest == (ROOT / recorded).read_text()

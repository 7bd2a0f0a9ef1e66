"""launch/check_cluster.py names what is wrong, on the node at fault, with what mends it."""

import shutil
import subprocess
import sys

import pytest

from tests.processes import ROOT

FILES = ("multinode.py", "utils.py")
LIMIT = 120  # seconds; a bound on hangs, not a measure of speed


@pytest.fixture
def check(cluster):
    """Runs the check on both nodes: `{node: (status, output)}`."""
    nodes = cluster(2)
    for node in nodes.nodes:
        for file in FILES:
            shutil.copy(ROOT / file, nodes.folder(node))

    def run(one=(), two=(), env=(), endpoint="node1:29500"):
        running = {}
        for node, words in zip(nodes.nodes, (one, two), strict=True):
            if words is None:
                continue
            words = ["--nnodes", "2", "--endpoint", endpoint, *words, *FILES]
            running[node] = nodes.run(
                node, [sys.executable, str(ROOT / "launch" / "check_cluster.py"), *words],
                env=dict(env).get(node), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True,
            )  # fmt: skip
        return {
            node: (process.wait(LIMIT), process.stdout.read()) for node, process in running.items()
        }

    run.nodes = nodes
    return run


def test_nodes_that_are_ready(check):
    for node, (status, said) in check().items():
        assert status == 0 and said.rstrip().endswith(f"{node}: VERDICT: ready"), said
        assert said.count("all-reduce of") == 3 and "(eth0)" in said
        assert "the folder is this node's own" in said


def test_a_script_that_differs(check):
    with open(check.nodes.folder("node2") / "multinode.py", "a") as script:
        script.write("# changed\n")
    said = check()
    assert said["node2"][0] == 1 and "multinode.py is" in said["node2"][1]
    assert "bring multinode.py to the same version" in said["node2"][1]
    assert said["node1"][0] == 1 and "something is wrong on node2" in said["node1"][1]


def test_numbers_that_contradict_each_other(check):
    said = check(two=["--nnodes", "3"])
    assert "--nnodes is 3 here and 2 on node1" in said["node2"][1]
    said = check(one=["--node-rank", "1"], two=["--node-rank", "1"])
    assert all("give one of them --node-rank 0" in text for _, text in said.values())
    assert "--node-rank 1 is that of node2 too" in said["node1"][1]
    (said,) = check(one=["--node-rank", "2"], two=None).values()
    assert said[0] == 2 and "--node-rank is 2, but must be from 0 to 1" in said[1]


def test_a_node_that_never_comes(check):
    status, said = check(one=["--timeout", "2"], two=None)["node1"]
    assert status == 1 and "1 of 2 nodes came in 2 s: node1" in said


def test_a_node_that_nobody_listens_on(check):
    status, said = check(one=None, two=["--timeout", "2"])["node2"]
    assert status == 1 and "start this check on node1 too" in said


def test_a_name_of_another_node_that_does_not_resolve(check):
    hosts = check.nodes.place / "hosts.node1"
    hosts.write_text(hosts.read_text().replace("10.77.0.12 node2", ""))
    said = check()
    assert "node2, the name of another node, does not resolve here" in said["node1"][1]
    assert "add a line '10.77.0.12 node2' to /etc/hosts" in said["node1"][1]
    assert [status for status, _ in said.values()] == [1, 0]


def test_a_stranger_at_the_port(check):
    code = """import socket, time
for _ in range(600):
    try:
        socket.create_connection(("node1", 29500)).sendall(b"GET / HTTP/1.1\\r\\n")
        break
    except OSError:
        time.sleep(0.05)"""
    stranger = check.nodes.run("node2", [sys.executable, "-c", code])
    said = check(one=["--timeout", "5"], two=None)
    assert stranger.wait(LIMIT) == 0
    assert said["node1"][0] == 1 and "1 of 2 nodes came in 5 s" in said["node1"][1]


def test_a_name_that_does_not_resolve(check):
    status, said = check(one=None, endpoint="nodeX:29500")["node2"]
    assert status == 1 and "the name nodeX does not resolve here" in said
    assert "/etc/hosts" in said


def test_a_port_that_is_taken(check):
    code = (
        "import socket, time; s = socket.create_server(('', 29500)); print(1, flush=True)\n"
        "time.sleep(99)"
    )
    holder = check.nodes.run("node1", [sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout.readline()
    status, said = check(two=None)["node1"]
    assert status == 1 and "port 29500 is taken on this node" in said


def test_an_interface_that_is_not_there(check):
    wrong = {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "ib"}
    said = check(env={"node1": wrong, "node2": {"NCCL_SOCKET_IFNAME": "=lo"}})
    for name, asked in wrong.items():
        assert f"{name} is {asked}; there are: lo, eth0" in said["node1"][1]
    assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said["node1"][1]
    assert "NCCL_SOCKET_IFNAME is =lo, but the way to the others is eth0" in said["node2"][1]


@pytest.mark.parametrize("node, address", [("node1", "10.77.0.11"), ("node2", "10.77.0.12")])
def test_debians_line_for_the_own_name(check, node, address):
    """On the node of the endpoint, and on another."""
    hosts = check.nodes.place / f"hosts.{node}"
    hosts.write_text(hosts.read_text().replace(f"{address} {node}", f"127.0.1.1 {node}"))
    said = check()
    assert f"{node} resolves to 127.0.1.1 here" in said[node][1]
    assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said[node][1]
    mended = check(env={node: {"GLOO_SOCKET_IFNAME": "eth0"}})
    assert [status for status, _ in mended.values()] == [0, 0], mended

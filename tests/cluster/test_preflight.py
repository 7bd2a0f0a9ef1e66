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


def test_a_node_that_never_comes(check):
    status, said = check(one=["--timeout", "2"], two=None)["node1"]
    assert status == 1 and "1 of 2 nodes came in 2 s: node1" in said


def test_a_node_that_nobody_listens_on(check):
    status, said = check(one=None, two=["--timeout", "2"])["node2"]
    assert status == 1 and "start this check on node1 too" in said


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
    said = check(env={"node1": {"GLOO_SOCKET_IFNAME": "eth7"}})
    assert "GLOO_SOCKET_IFNAME is eth7; there are: lo, eth0" in said["node1"][1]
    assert "export GLOO_SOCKET_IFNAME=eth0" in said["node1"][1]


def test_debians_line_for_the_own_name(check):
    hosts = check.nodes.place / "hosts.node2"
    hosts.write_text(hosts.read_text().replace("10.77.0.12 node2", "127.0.1.1 node2"))
    said = check()
    assert "node2 resolves to 127.0.1.1 here" in said["node2"][1]
    mended = check(env={"node2": {"GLOO_SOCKET_IFNAME": "eth0"}})
    assert [status for status, _ in mended.values()] == [0, 0], mended

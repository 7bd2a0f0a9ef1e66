"""launch/check_cluster.py names what is wrong, on the node at fault, with what mends it."""

import importlib.util
import json
import shutil
import socket
import subprocess
import sys
import threading
from hashlib import sha256
from types import SimpleNamespace

import pytest

from tests.cluster.jobs import FILES
from tests.processes import ROOT

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
            words = ["--endpoint", endpoint, *words]
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
        for file in FILES:
            seen = sha256((ROOT / file).read_bytes()).hexdigest()
            assert f"sha256 of {file}: {seen[:12]}" in said


def test_a_script_that_differs(check):
    with open(check.nodes.folder("node2") / "multinode.py", "a") as script:
        script.write("# changed\n")
    said = check()
    assert said["node2"][0] == 1 and "multinode.py is" in said["node2"][1]
    assert "bring multinode.py to the same version" in said["node2"][1]
    assert said["node1"][0] == 1 and "something is wrong on node2" in said["node1"][1]


def test_numbers_that_contradict_each_other(check):
    said = check(one=["--node-rank", "1"], two=["--node-rank", "1", "--nnodes", "3"])
    assert "--nnodes is 3 here and 2 on node1" in said["node2"][1]
    assert "--node-rank 1 is that of node2 too" in said["node1"][1]
    assert "--node-rank 1 is that of node1 too" in said["node2"][1]
    assert "VERDICT: not ready; give one of them --node-rank 0" in said["node1"][1]
    (said,) = check(one=["--node-rank", "2"], two=None).values()
    assert said[0] == 2 and "--node-rank is 2, but must be from 0 to 1" in said[1]


def test_a_node_that_nobody_listens_on(check):
    status, said = check(one=None, two=["--timeout", "2"])["node2"]
    assert status == 1 and "start this check on node1 too" in said


def test_names_of_other_nodes(check):
    """node1 calls itself node1.lan, which node2 does not know; node1 has an old line for node2."""
    hosts = check.nodes.place / "hosts.node1"
    text = hosts.read_text().replace("10.77.0.11 node1", "10.77.0.11 node1.lan node1")
    hosts.write_text(text.replace("10.77.0.12 node2", "10.77.0.99 node2"))
    said = check()
    assert "node1.lan, the name of another node, does not resolve here" in said["node2"][1]
    assert "VERDICT: not ready; have /etc/hosts say '10.77.0.11 node1.lan'" in said["node2"][1]
    assert "node2 is 10.77.0.99 here, but that node has 127.0.0.1, 10.77.0.12" in said["node1"][1]


def test_a_node_that_never_comes_but_a_stranger_does(check):
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
    assert said["node1"][0] == 1 and "1 of 2 nodes came in 5 s: node1" in said["node1"][1]


def test_a_name_that_does_not_resolve(check):
    status, said = check(one=None, endpoint="nodeX:29500")["node2"]
    assert status == 1 and "the name nodeX does not resolve here" in said
    assert "/etc/hosts" in said


def test_a_port_that_is_taken(check):
    """By something that answers, as sshd would, and not what the check expects."""
    code = (
        "import socket; s = socket.create_server(('', 29500)); print(1, flush=True)\n"
        "while True: s.accept()[0].sendall(b'hello\\n')"
    )
    holder = check.nodes.run("node1", [sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert holder.stdout.readline()
    said = check()
    assert all(status == 1 and "Traceback" not in text for status, text in said.values()), said
    assert "port 29500 is taken on this node" in said["node1"][1]
    assert "what answers there is not this check" in said["node2"][1]


def test_an_interface_that_is_not_there(check):
    wrong = {"GLOO_SOCKET_IFNAME": "eth7", "NCCL_SOCKET_IFNAME": "ib"}
    said = check(env={"node1": wrong, "node2": {"NCCL_SOCKET_IFNAME": "=lo"}})
    for name, asked in wrong.items():
        assert f"{name} is {asked}; there are: lo, eth0" in said["node1"][1]
    assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said["node1"][1]
    assert "NCCL_SOCKET_IFNAME is =lo, but the way to the others is eth0" in said["node2"][1]


def test_debians_line_for_the_own_name(check):
    """On the node of the endpoint, and on another: each has it in its own file."""
    for node in check.nodes.nodes:
        hosts = check.nodes.place / f"hosts.{node}"
        right = f"{check.nodes.address(node)} {node}"
        assert right in hosts.read_text()
        hosts.write_text(hosts.read_text().replace(right, f"127.0.1.1 {node}"))
    for node, (status, said) in check().items():
        assert status == 1 and f"{node} resolves to 127.0.1.1 here" in said
        assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said
    env = {node: {"GLOO_SOCKET_IFNAME": "eth0"} for node in check.nodes.nodes}
    mended = check(env=env, endpoint="10.77.0.11:29500")  # torch would not know it as node1's
    assert [status for status, _ in mended.values()] == [0, 0], mended


@pytest.fixture
def program(monkeypatch):
    """launch/check_cluster.py as a module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # launch/ is copied, file by file
    spec = importlib.util.spec_from_file_location("check", ROOT / "launch" / "check_cluster.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FACTS = {
    "name": "node1", "address": "10.0.0.1", "nnodes": 2, "node_rank": None, "devices": 0,
    "versions": {"python": "3.11.7", "torch": "2.13.0"}, "files": {}, "skew": 0,
}  # fmt: skip


@pytest.mark.parametrize("other, text", [
    ({}, None),
    ({"devices": 8}, "GPUs: 8 here and 0 on node1"),
    ({"skew": -30}, "the clock is -30 s from that of node1"),
    ({"name": "node1"}, "another node is called node1 too"),
    ({"files": {"a.py": "1"}}, None),  # node1 lacks it, and is told
    ({"versions": {"python": "3.11.7", "torch": "2.12.0"}},
     "torch is 2.12.0 here and 2.13.0 on node1"),
])  # fmt: skip
def test_what_only_shows_side_by_side(other, text, program):
    other = {**FACTS, "name": "node2", "address": "10.0.0.2", **other}
    found = program.differences(other, [FACTS, other])
    assert [said for said, _ in found] == [text] * bool(text)
    told = [said for said, _ in program.differences(FACTS, [FACTS, other])]
    assert ("a.py is on node2 and not in this folder" in told) == bool(other["files"])


def test_a_check_started_again_counts_once(program):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    heard, options = [], SimpleNamespace(nnodes=3, timeout=3)
    waiting = threading.Thread(
        target=lambda: heard.extend(program.receive(options, "127.0.0.1", port, FACTS))
    )
    waiting.start()
    other = {**FACTS, "name": "node2", "address": "10.0.0.2", "clock": 0}
    asked = 0
    while asked < 2:
        try:
            with socket.create_connection(("127.0.0.1", port)) as stream:
                stream.sendall(json.dumps(other).encode() + b"\n")
                asked += 1
        except ConnectionRefusedError:
            assert waiting.is_alive()
    waiting.join(60)
    assert [one["name"] for one in heard] == ["node1", "node2"]


def test_the_address_that_gloo_gives(program, capsys):
    """The host name's, if it is one of this node; then one on the way to the others is better."""
    report, interfaces = program.Report("node1"), {"lo": ["127.0.0.1"], "eth0": ["10.77.0.11"]}
    program.say_address(report, "node1", "10.77.0.11", "10.77.0.11", "eth0", interfaces)
    assert capsys.readouterr().out == "node1: will be 10.77.0.11 (eth0) to the others over gloo\n"
    program.is_here = lambda address: address == "10.88.0.11"
    program.say_address(report, "node1", "10.88.0.11", "10.77.0.11", "eth0", interfaces)
    better = "better, since the way to the others is 10.77.0.11: GLOO_SOCKET_IFNAME=eth0"
    assert better in capsys.readouterr().out and not report.mends
    program.say_address(report, "node1", "10.99.0.11", "10.77.0.11", "eth0", interfaces)
    assert "10.99.0.11 here, which is no address of this node" in capsys.readouterr().out
    assert report.mends == ["have /etc/hosts say '10.77.0.11 node1'"]


def test_an_address_is_here_if_something_can_listen_there(program):
    assert program.is_here("127.0.0.1") and not program.is_here("192.0.2.1")  # TEST-NET-1

"""launch/check_cluster.py names each mistake and its fix, on the node that has it."""

import importlib.util
import shutil
import subprocess
import sys

import pytest

from tests.cluster.jobs import FILES
from tests.processes import ROOT

LIMIT = 120  # seconds; it catches hangs and says nothing about speed


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
        assert "all-reduce of 16,777,216 bytes over gloo: " in said and "(eth0)" in said


def test_a_script_that_differs(check):
    with open(check.nodes.folder("node2") / "multinode.py", "a") as script:
        script.write("# changed\n")
    said = check()
    assert said["node2"][0] == 1 and "multinode.py is" in said["node2"][1]
    assert "make multinode.py the same on all nodes" in said["node2"][1]
    assert said["node1"][0] == 1 and "something is wrong on node2" in said["node1"][1]


def test_a_node_that_nobody_listens_on(check):
    status, said = check(one=None, two=["--timeout", "2"])["node2"]
    assert status == 1 and "start this check on node1 too" in said


def test_names_of_other_nodes(check):
    """node1 calls itself node1.lan, which node2 does not know; node1 has an old line for node2."""
    hosts = check.nodes.place / "hosts.node1"
    text = hosts.read_text().replace("10.77.0.11 node1", "10.77.0.11 node1.lan node1")
    hosts.write_text(text.replace("10.77.0.12 node2", "10.77.0.99 node2"))
    said = check()
    assert "node1.lan is unknown here, but that node has 127.0.0.1, 10.77.0.11" in said["node2"][1]
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
    """By a program that answers something else than the check expects, as sshd would."""
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
        assert f"{name} is {asked}, but of lo, eth0 only eth0 leads" in said["node1"][1]
    assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said["node1"][1]
    assert "NCCL_SOCKET_IFNAME is =lo, but of lo, eth0 only eth0" in said["node2"][1]


def test_debians_line_for_the_own_name(check):
    """On the endpoint's node and on another, each in its own file."""
    for node in check.nodes.nodes:
        hosts = check.nodes.place / f"hosts.{node}"
        right = f"{check.nodes.address(node)} {node}"
        assert right in hosts.read_text()
        hosts.write_text(hosts.read_text().replace(right, f"127.0.1.1 {node}"))
    for node, (status, said) in check().items():
        assert status == 1 and f"{node} resolves to 127.0.1.1 here" in said
        assert "VERDICT: not ready; export GLOO_SOCKET_IFNAME=eth0" in said
    env = {node: {"GLOO_SOCKET_IFNAME": "eth0"} for node in check.nodes.nodes}
    fixed = check(env=env, endpoint="10.77.0.11:29500")  # torch would not know it as node1's
    assert [status for status, _ in fixed.values()] == [0, 0], fixed


@pytest.fixture
def program(monkeypatch):
    """launch/check_cluster.py as a module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # launch/ is copied, file by file
    spec = importlib.util.spec_from_file_location("check", ROOT / "launch" / "check_cluster.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SAME = {"--nnodes": 2, "torch": "2.13.0"}
FACTS = {"name": "node1", "address": "10.0.0.1", "same": SAME, "skew": 0}


@pytest.mark.parametrize("other, same, text", [
    ({}, {}, None),
    ({}, {"--nnodes": 3}, "--nnodes is 3 here and 2 on node1"),
    ({}, {"a.py": "1"}, None),  # node1 lacks it, and says so
    ({"skew": -30}, {}, "the clock is -30 s from that of node1"),
    ({"name": "node1"}, {}, "another node is called node1 too"),
])  # fmt: skip
def test_what_only_a_comparison_shows(other, same, text, program):
    other = {**FACTS, "name": "node2", "address": "10.0.0.2", **other, "same": {**SAME, **same}}
    found = program.differences(other, [FACTS, other])
    assert [said for said, _ in found] == [text] * bool(text)
    told = [said for said, _ in program.differences(FACTS, [FACTS, other])]
    assert ("a.py is on another node and not in this folder" in told) == ("a.py" in same)


@pytest.mark.parametrize("option, text, says", [
    ("--nnodes", "0", "is no number from 1 to 999999"),
    ("--timeout", "1.5", "is no number from 1 to 999999"),
    ("--endpoint", "node1", "is no host and port, as node1:29500"),
    ("--endpoint", "node1:65536", "is no number from 1 to 65535"),
    ("--endpoint", "a..b:1", "is no host and port, as node1:29500"),
])  # fmt: skip
def test_a_wrong_value_gets_one_line(option, text, says, program, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check", "--endpoint=localhost:1", f"{option}={text}"])
    with pytest.raises(SystemExit, match="2"):
        program.main()
    said = capsys.readouterr().err
    assert said.startswith(f"check: argument {option}: ") and said.count("\n") == 1 and says in said

"""Nodes have names, addresses, disks and processes of their own, and leave nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import ROOT
from tools.cluster import Cluster
from tools.cluster.cluster import STATE
from tools.errors import UserError

LISTEN = (
    "import socket; s = socket.create_server(('', 5000)); print('ready', flush=True)\n"
    "while True: s.accept()[0].sendall(socket.gethostname().encode())"
)
ASK = "import socket; s = socket.create_connection(('node1', 5000), 2); print(s.recv(99).decode())"


def said(cluster, node, *words):
    process = cluster.run(node, list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode().strip(), err.decode()


def python(cluster, node, code):
    return said(cluster, node, sys.executable, "-c", code)


def test_names_addresses_and_disks_of_their_own(cluster):
    nodes = cluster(3)
    assert nodes.nodes == ["node1", "node2", "node3"]
    for number, node in enumerate(nodes.nodes, 1):
        assert said(nodes, node, "hostname")[1] == node
        code = "import socket; print(socket.gethostbyname(socket.gethostname()))"
        assert python(nodes, node, code)[1] == f"10.77.0.{10 + number}" == nodes.address(node)
        assert said(nodes, node, "sh", "-c", "ls; touch here")[1] == ""
        assert (nodes.folder(node) / "here").exists()
    processes = said(nodes, "node2", "sh", "-c", "ls /proc | grep -c '^[0-9]'")[1]
    assert int(processes) < 10  # its own, not the host's


def test_a_link_is_cut_and_healed(cluster):
    nodes = cluster(2)
    server = nodes.run("node1", [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    assert python(nodes, "node2", ASK)[1] == "node1"
    nodes.cut("node2")
    status, _, error = python(nodes, "node2", ASK)
    assert status and ("timed out" in error or "No route" in error)
    nodes.heal("node2")
    end = time.monotonic() + 30  # the first that is sent may be lost
    while python(nodes, "node2", ASK)[1] != "node1":
        assert time.monotonic() < end


def test_a_node_dies_with_all_its_processes_and_is_replaced(cluster):
    nodes = cluster(2)
    script = "setsid sleep 1000 & echo ready; exec sleep 1000"
    process = nodes.run("node2", ["sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (nodes.folder("node2") / "checkpoint").touch()
    nodes.kill("node2")
    assert process.wait(10)
    assert process.stdout.read() == b""  # ends only when the last process that holds it has
    with pytest.raises(UserError, match="no node is called 'node2'; up are: node1"):
        nodes.run("node2", ["true"])
    nodes.replace("node2")
    assert said(nodes, "node2", "sh", "-c", "hostname; ls")[1] == "node2"
    server = nodes.run("node1", [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    assert python(nodes, "node2", ASK)[1] == "node1"


def test_two_clusters_do_not_meet(cluster):
    one, other = cluster(1), cluster(2)
    server = one.run("node1", [sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
    assert server.stdout.readline() == b"ready\n"
    assert "refused" in python(other, "node2", ASK)[2]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_the_tool(cluster, sign):
    """What a SIGKILL leaves, the next `up` or `down` cleans."""
    cluster(1)  # skips without root
    name = f"test-left-{os.getpid()}"
    code = (
        "import signal, time; from tools.cluster import Cluster\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's & has it ignored
        f"with Cluster(2, {name!r}) as c:\n"
        "    c.run('node1', ['sleep', '1000']); print('up', flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"up\n"
        holders = list(Cluster.open(name).holders.values())
        assert len(holders) == 3
        process.send_signal(sign)
        process.wait(30)
        if sign != signal.SIGINT:
            tool(name, "down")
        end = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in holders):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert not (STATE / name).exists()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        Cluster(name=name).down()


def test_a_node_that_could_not_be_noted_ends_by_itself(cluster):
    cluster(1)  # skips without root
    name = f"test-left-{os.getpid()}"
    code = (
        "import os; from tools.cluster import Cluster\n"
        "def killed(self):\n"
        "    print(self.holders['switch'], flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        f"Cluster._note = killed; Cluster(1, {name!r}).up()"
    )
    try:
        ended = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, timeout=60
        )
        assert ended.returncode == -signal.SIGKILL
        end = time.monotonic() + 10
        while Path(f"/proc/{int(ended.stdout)}").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        Cluster(name=name).down()


def tool(name, *words):
    return subprocess.run(
        [sys.executable, "-m", "tools.cluster", "--name", name, *words], cwd=ROOT,
        capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_by_command(cluster):
    cluster(1)  # skips without root
    name = f"test-command-{os.getpid()}"
    try:
        up = tool(name, "up", "2")
        assert up.returncode == 0 and "node2  10.77.0.12" in up.stdout
        ran = tool(name, "run", "all", "sh", "-c", "hostname; exit 3")
        assert sorted(ran.stdout.split("\n"))[1:] == ["node1: node1", "node2: node2"]
        assert ran.returncode == 3
        assert "no node is called 'node7'" in tool(name, "cut", "node7").stderr
        assert tool(name, "up", "1").returncode == 0  # ends the one before
        assert tool(name, "list").stdout.count("node") == 2
    finally:
        assert tool(name, "down").returncode == 0
    assert "no cluster is up" in tool(name, "list").stderr


def test_a_service_that_does_not_start_is_quoted(cluster):
    nodes = cluster(1)
    nodes.serve({}, [("node1", ["sh", "-c", "echo no key >&2; exit 1"])])
    with pytest.raises(UserError, match="no service in 1 s: no key"):
        nodes.until(lambda: False, "no service", 1)
    with pytest.raises(UserError, match="no nonesuch here: apt install a-package"):
        nodes.needs({"sh": "dash", "nonesuch": "a-package"})


def test_without_root_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match=r"need root: sudo .* docs/labs/nodes.py"):
        Cluster(2).up()

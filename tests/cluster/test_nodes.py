"""The commands of the cluster in a box, which leaves nothing behind.

test_deaths.py and test_silence.py rely on these nodes and faults.
"""

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.cluster.conftest import POSSIBLE
from tests.processes import ROOT
from tools.cluster import Cluster
from tools.errors import UserError
from tools.processes import Process, environment

PROMPT = [sys.executable, "-m", "tools.cluster", "2"]

with_root = pytest.mark.skipif(not POSSIBLE, reason="needs Linux, root and iproute2")


@with_root
def test_by_commands():
    commands = [
        "run all sh -c 'hostname; touch here'", "cut node7", "run node1 sh -c '", "run node1",
        "limit node2 10mbit 1ms", "limit node2", "limit node2 fast", "limit",
        "kill node2", "run node2 ls", "replace node2", "run all ls", "start all sleep 1000",
    ]  # fmt: skip
    ended = subprocess.run(
        PROMPT, input="\n".join(commands), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    said = ended.stdout.replace("cluster> ", "").splitlines()
    assert said[1].split()[:2] == ["node2", "10.77.0.12"]
    assert sorted(said[2:4]) == ["node1: node1", "node2: node2"]
    assert said[4:] == [
        "no node is called 'node7'; running: node1, node2",
        "No closing quotation",
        "nothing to run: run node1 hostname",
        "fast: a limit must be like 10mbit 5ms",
        "limit what? limit node2 10mbit, or limit node2 10mbit 5ms",
        "no node is called 'node2'; running: node1",
        "node1: here",  # and node2 has a new disk
    ]


@with_root
@pytest.mark.parametrize("sign", [signal.SIGHUP, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_the_tool(sign, tmp_path):
    """Except for a folder after a SIGKILL."""
    env = environment(TMPDIR=str(tmp_path))
    with Process(PROMPT, cwd=ROOT, env=env, stdin=subprocess.PIPE) as process:
        process.process.stdin.write("start all sh -c 'setsid sleep 1000 & echo sleeps; wait'\n")
        process.process.stdin.flush()
        process.wait_for("node1: sleeps")
        process.wait_for("node2: sleeps")
        nodes = process.tree()[1:]
        process.process.send_signal(sign)
        # A terminal that closes ends the input too. A signal just before a read waits for it.
        process.process.stdin.close()
        process.process.wait(60)
        assert nodes and psutil.wait_procs(nodes, 60)[1] == []
    assert sign == signal.SIGKILL or not list(tmp_path.iterdir())


def test_a_service_that_does_not_start_is_quoted(cluster):
    nodes = cluster(1)
    nodes.serve([("node1", ["sh", "-c", "echo no key >&2; exit 1"])])
    with pytest.raises(UserError, match="no service in 1 s: no key"):
        nodes.until(lambda: False, "no service", 1)
    with pytest.raises(UserError, match="no nonesuch here: apt install a-package"):
        nodes.needs({"sh": "dash", "nonesuch": "a-package"})


def test_without_root_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(UserError, match=r"need root: sudo .* docs/labs/nodes.py"):
        Cluster(2).up()

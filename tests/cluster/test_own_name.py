"""A machine whose own name, or localhost, leads nowhere: every start says so, or trains."""

import re
import sys

import pytest

from tests.cluster.jobs import Command, lay
from tests.processes import ROOT, command

PYTHON = sys.executable
LAUNCH = ROOT / "launch"
WORDS = {
    "lesson 2": [PYTHON, "multigpu.py", "2", "1"],
    "lesson 3": [
        "torchrun", "--standalone", "--nproc_per_node=2", "--max-restarts=3",
        "multigpu_torchrun.py", "2", "1",
    ],
    "hello by hand": [PYTHON, str(LAUNCH / "hello.py")],
    "recipe": ["sh", str(LAUNCH / "torchrun_c10d.sh"), "multinode.py", "2", "1"],
    "preflight": [
        PYTHON, str(LAUNCH / "check_cluster.py"), "--endpoint=localhost:29533", "--nnodes=1",
        "multinode.py",
    ],
}  # fmt: skip
ENV = {
    # Without its last variable, torchrun itself asks for the name before it starts the workers.
    "lesson 3": command("multigpu_torchrun")[0],
    "recipe": {"NNODES": "1", "ENDPOINT": "localhost:29500"},
    "hello by hand": {
        "RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "nosuchhost",
        "MASTER_PORT": "29500",
    },
}  # fmt: skip
NAMED = "no address for node1: add it to /etc/hosts, or, if there is one node, export PET_LOCAL"
UNNAMED = {  # what each says if the machine's own name does not resolve, and its status
    "lesson 2": (r"Epoch  2 \| loss", 0),
    "lesson 3": (f"^multigpu_torchrun.py: {NAMED}", 1),
    "hello by hand": (r"^hello.py: no address for nosuchhost: .*export PET_LOCAL_ADDR=\S+$", 1),
    "recipe": ("^the host name node1 does not resolve on node1 itself .* only node$", 2),
    "preflight": ("VERDICT: not ready; .*'127.0.0.1 node1', or export PET_LOCAL_ADDR=127.0", 1),
}
UNREACHED = {
    "lesson 2": r"^multigpu.py: localhost does not work here \(.*\): add `127.0.0.1 localhost` to",
    "recipe": r"^localhost does not work here \(.*\): /etc/hosts must say '127.0.0.1 localhost',",
    "preflight": "VERDICT: not ready; .*localhost '127.0.0.1 localhost'",
}


@pytest.fixture
def node(cluster):
    """One node without its own name. `node(name, **env)` runs WORDS[name] to its end there."""
    nodes = cluster(1)
    lay(nodes.folder("node1"), "multigpu.py", "multigpu_torchrun.py")
    hosts = nodes.place / "hosts.node1"
    hosts.write_text("127.0.0.1 localhost\n")

    def run(name, **env):
        command = Command(nodes, "node1", WORDS[name], {**ENV.get(name, {}), **env})
        return command.wait(120), command.out  # torch waits for over half an hour

    run.nodes, run.hosts = nodes, hosts
    return run


@pytest.mark.parametrize("name", UNNAMED)
def test_its_own_name_does_not_resolve(name, node):
    says, status = UNNAMED[name]
    ended, out = node(name)
    assert ended == status and re.search(says, out, re.MULTILINE), out


@pytest.mark.parametrize("name", ["lesson 3", "recipe", "preflight"])
def test_the_remedy_that_all_of_them_name(name, node):
    ended, out = node(name, PET_LOCAL_ADDR="127.0.0.1")
    assert ended == 0 and re.search("Epoch  2 . loss|VERDICT: ready", out, re.MULTILINE)


@pytest.mark.parametrize("name", UNREACHED)
def test_localhost_leads_nowhere(name, node):
    node.hosts.write_text(f"{node.nodes.address('node1')} node1\n")
    ended, out = node(name)
    assert ended and re.search(UNREACHED[name], out, re.MULTILINE), out


def test_its_name_is_that_of_an_address_elsewhere(node):
    """As a VPN leaves it behind. Only the preflight sees that."""
    node.hosts.write_text("127.0.0.1 localhost\n192.0.2.7 node1\n")
    ended, out = node("preflight")
    assert ended == 1 and "BAD  node1 resolves to 192.0.2.7 here" in out, out
    assert "VERDICT: not ready; have /etc/hosts say '127.0.0.1 node1', or export PET_LOC" in out

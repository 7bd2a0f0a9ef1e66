"""Every launcher here runs the same file, byte for byte, and gets the same weights."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading

import pytest
from torch.distributed import TCPStore

from tests.cluster.jobs import PATH, SHORT, Command, close, lay
from tests.faults import same
from tests.processes import LIMIT, ROOT


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
    for node in start.nodes.nodes:  # no launcher edits it
        script = start.nodes.folder(node) / "multinode.py"
        assert script.read_bytes() == (ROOT / "multinode.py").read_bytes()


def test_two_agents_on_one_machine():
    """Without root, or on a laptop: the first hosts the store, the second finds it there."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "PATH": PATH, "NNODES": "2", "ENDPOINT": f"localhost:{port}"}
    words = ["sh", str(ROOT / "launch" / "torchrun_c10d.sh"), str(ROOT / "launch" / "hello.py")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    agents = [subprocess.Popen(words, env=env, **pipes) for _ in range(2)]
    try:
        said = "".join(agent.communicate(timeout=LIMIT)[0] for agent in agents)
    finally:
        for agent in agents:
            agent.kill()
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert "2 ranks over gloo" in said
    command = f"NNODES=2 NPROC=1 ENDPOINT=localhost:{port} {' '.join(words)}"
    assert said.count(f"run on each of the 2 nodes: {command}\n") == 2


def test_ranks_that_see_one_gpu_each():
    """As with srun --gpus-per-task: LOCAL_RANK would name a missing GPU."""
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "PATH": PATH}
    words = ["sh", str(ROOT / "launch" / "ranks.sh"), "echo", "started"]
    for visible, status in (("1", 2), ("GPU-8f", 2), ("0,1", 0), ("", 0), ("-1", 0)):
        env |= {"CUDA_VISIBLE_DEVICES": visible, "MASTER_ADDR": "node1"}
        ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
        assert ran.returncode == status and (ran.stdout == "started\n") == (not status)
        assert ("by --gpus-per-node in place of" in ran.stderr) == bool(status)


@pytest.mark.parametrize("missing", ["NNODES", "ENDPOINT"])
def test_a_variable_that_is_missing_is_named(missing):
    env = {"NNODES": "2", "ENDPOINT": "node1:29500", "PATH": PATH}
    del env[missing]
    ran = subprocess.run(
        ["sh", str(ROOT / "launch" / "torchrun_c10d.sh"), "multinode.py"], env=env, text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert ran.returncode and missing in ran.stderr and "as " in ran.stderr


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


def test_what_torchrun_would_wait_for_in_silence():
    with socket.create_server(("localhost", 0)) as silent:
        status, said = before(f"localhost:{silent.getsockname()[1]}")
    assert status == 1 and "but is no torchrun, or it is frozen: it has not answered for 3" in said
    status, said = before("localhost:1", GLOO_SOCKET_IFNAME="eth7")
    assert status == 2 and said.startswith("GLOO_SOCKET_IFNAME is eth7, but ")


def test_an_endpoint_that_answers_is_left_to_torchrun():
    """A running torchrun's store, or another program, which torchrun then names."""
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert before(f"localhost:{store.port}") == (0, "")
    with socket.create_server(("localhost", 0)) as sshd:
        thread = threading.Thread(target=answer, args=(sshd,), daemon=True)
        thread.start()
        assert before(f"localhost:{sshd.getsockname()[1]}", JOIN_TIMEOUT="20")[0] == 0


def answer(server):
    with contextlib.suppress(OSError):  # until it is closed
        while True:
            server.accept()[0].sendall(b"SSH-2.0-OpenSSH\r\n")


def test_the_recipes_name_no_lesson():
    recipes = [file for file in (ROOT / "launch").iterdir() if file.suffix in (".sh", ".yaml")]
    for recipe in recipes:
        code = re.sub(r"(?m)(^|\s)#.*", "", recipe.read_text())
        scripts = set(re.findall(r"[\w/]+\.py\b", code))
        if recipe.suffix == ".yaml":  # takes no command after it, so it runs the first test
            assert scripts == {"launch/hello.py"}, recipe
        else:
            assert scripts <= {"/before.py"}, recipe
            sourced = recipe.name in ("torchrun_env.sh", "restarts.sh")
            assert '"$@"' in code or sourced, recipe

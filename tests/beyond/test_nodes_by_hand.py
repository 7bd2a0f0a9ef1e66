"""Nodes started by hand train as under torchrun, and each mistake ends with a line, in time."""

import os
import re
import signal
import socket
import time

import pytest

from tests.beyond.checkpoints import last_save
from tests.faults import same
from tests.nodes import finish
from tests.processes import LESSONS, LIMIT, ROOT, Process, run
from tools import processes
from tools.processes import environment, free_port

SHORT = (5, 5, "--batch_size", 16)


def node(number, init, *args, cwd, nodes=2, gpus=2, **env):
    cwd.mkdir(exist_ok=True)
    options = ("--nodes", nodes, "--gpus", gpus, "--nr", number, "--init", init)
    return Process("nodes_by_hand", *options, *args, cwd=cwd, env=env)


def impatient(number, init, cwd, nodes=2, gpus=1):
    """A node that waits three seconds for the others, instead of five minutes."""
    text = (ROOT / LESSONS["nodes_by_hand"].file).read_text()
    assert text.count("minutes=5") == 1
    (cwd / "impatient.py").write_text(text.replace("minutes=5", "seconds=3"))
    words = ["python", "impatient.py", "--nodes", nodes, "--gpus", gpus, "--nr", number]
    env = environment(OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    return processes.Process([*words, "--init", init, "3", "3"], cwd=cwd, env=env)


def check_last_line(process, script, says, status=1):
    """The last line is the only one by the script, and no traceback of Python is shown."""
    assert process.wait() == status, process.tail
    lines = [*process.lines, *process.err.splitlines()]
    assert [line for line in lines if line.startswith(f"{script}.py: ")] == lines[-1:], lines
    assert re.fullmatch(f"{script}.py: {says}", lines[-1]), lines[-1]
    assert not any(line.startswith("Traceback") for line in lines)


def cannot_meet(why):
    fix = "start each of them once, with the same address"
    return rf"cannot meet the other processes \({why}\): {fix}"


@pytest.mark.parametrize("way", ["env", "tcp", "file"])
def test_two_nodes_of_two_train_as_four_ranks_of_torchrun_bit_for_bit(way, trained, tmp_path):
    port, store = str(free_port()), tmp_path / "store"
    init = {"env": "env://", "tcp": f"tcp://localhost:{port}", "file": f"file://{store}"}[way]
    env = {"MASTER_ADDR": "localhost", "MASTER_PORT": port} if way == "env" else {}
    folders = [tmp_path / f"node{number}" for number in range(2)]
    found = [node(n, init, *SHORT, cwd=folder, **env) for n, folder in enumerate(folders)]
    assert finish(found) == [0, 0], [process.tail for process in found]
    reference = last_save(trained("multinode", *SHORT, nproc=4))
    assert same(folders[0] / "nodes_by_hand.pt", reference)
    assert not (folders[1] / "nodes_by_hand.pt").exists() and not store.exists()


def test_two_nodes_of_one_train_as_two_ranks_of_torchrun_bit_for_bit(trained, tmp_path):
    """Here ranks differ if they count nodes in place of processes."""
    init, folders = f"file:{tmp_path}/store", [tmp_path / f"node{number}" for number in range(2)]
    found = [node(n, init, 50, 10, cwd=folder, gpus=1) for n, folder in enumerate(folders)]
    assert finish(found) == [0, 0], [process.tail for process in found]
    assert same(folders[0] / "nodes_by_hand.pt", last_save(trained("multinode")))


def test_a_forgotten_number_of_the_node_is_named(tmp_path):
    process = run("nodes_by_hand", "--nodes", 2, "--gpus", 2, 1, 1, cwd=tmp_path)
    says = r"the following arguments are required: --nr \(--help lists the options\)"
    check_last_line(process, "nodes_by_hand", says, status=2)


def test_a_second_node_0_on_one_machine_finds_the_port_taken(tmp_path):
    init = f"tcp://localhost:{(port := free_port())}"
    with node(0, init, 1, 1, cwd=tmp_path / "first") as first:
        end = time.monotonic() + LIMIT
        while socket.socket().connect_ex(("localhost", port)) != 0:
            assert first.process.poll() is None and time.monotonic() < end, first.tail
            time.sleep(0.1)
        with node(0, init, 1, 1, cwd=tmp_path / "second") as second:
            check_last_line(second, "nodes_by_hand", cannot_meet(".*address already in use"))


def test_two_nodes_0_elsewhere_both_give_up(tmp_path):
    found = [impatient(0, "file:store", tmp_path) for _ in range(2)]
    for process in found:
        with process:
            check_last_line(process, "impatient", cannot_meet("RuntimeError: .*imeout.*"))


@pytest.mark.parametrize("number, why", [(0, "1/2 clients joined."), (1, "timed out .*")])
def test_without_the_other_node_a_node_gives_up(number, why, tmp_path):
    with impatient(number, f"tcp://localhost:{free_port()}", tmp_path) as process:
        check_last_line(process, "impatient", cannot_meet(rf"torch\.distributed\.Dist.* {why}"))


def test_a_killed_run_leaves_its_file_with_which_no_other_run_can_meet(tmp_path):
    store = tmp_path / "store"
    with node(0, f"file:{store}", 10**6, 10**6, cwd=tmp_path, nodes=1) as process:
        process.wait_for("Epoch +1 ")
        os.killpg(process.process.pid, signal.SIGKILL)
    assert store.exists()
    with impatient(0, f"file:{store}", tmp_path) as process:  # the other rank is only in the file
        check_last_line(process, "impatient", cannot_meet(".*connectFullMesh.*"))

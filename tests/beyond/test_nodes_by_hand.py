"""Nodes started by hand that cannot meet say so. The page shows that they train as by torchrun."""

import os
import re
import signal
import socket
import time

from tests.processes import LESSONS, LIMIT, ROOT, Process
from tools import processes
from tools.processes import environment, free_port


def node(number, init, *args, cwd, nodes=2, gpus=2):
    cwd.mkdir(exist_ok=True)
    options = ("--nodes", nodes, "--gpus", gpus, "--nr", number, "--init", init)
    return Process("nodes_by_hand", *options, *args, cwd=cwd)


def check_last_line(process, script, says):
    """The last line is the only one by the script, and no traceback of Python is shown."""
    assert process.wait() == 1, process.tail
    lines = [*process.lines, *process.err.splitlines()]
    assert [line for line in lines if line.startswith(f"{script}.py: ")] == lines[-1:], lines
    fix = "start each of them once, with the same address"
    line = rf"{script}.py: cannot meet the other processes \({says}\): {fix}"
    assert re.fullmatch(line, lines[-1]), lines[-1]
    assert not any(line.startswith("Traceback") for line in lines)


def test_a_second_node_0_on_one_machine_finds_the_port_taken(tmp_path):
    init = f"tcp://localhost:{(port := free_port())}"
    with node(0, init, 1, 1, cwd=tmp_path / "first") as first:
        end = time.monotonic() + LIMIT
        while socket.socket().connect_ex(("localhost", port)) != 0:
            assert first.process.poll() is None and time.monotonic() < end, first.tail
            time.sleep(0.1)
        with node(0, init, 1, 1, cwd=tmp_path / "second") as second:
            check_last_line(second, "nodes_by_hand", ".*address already in use")


def test_a_killed_run_leaves_its_file_with_which_no_other_run_can_meet(tmp_path):
    store = tmp_path / "store"
    with node(0, f"file:{store}", 10**6, 10**6, cwd=tmp_path, nodes=1) as process:
        process.wait_for("Epoch +1 ")
        os.killpg(process.process.pid, signal.SIGKILL)
    assert store.exists()
    text = (ROOT / LESSONS["nodes_by_hand"].file).read_text()
    assert text.count("minutes=5") == 1
    (tmp_path / "impatient.py").write_text(text.replace("minutes=5", "seconds=3"))
    words = ["python", "impatient.py", "--nodes", 2, "--gpus", 1, "--nr", 0, "--init"]
    env = environment(OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    with processes.Process([*words, f"file:{store}", "3", "3"], cwd=tmp_path, env=env) as process:
        check_last_line(process, "impatient", ".*connectFullMesh.*")  # finds the dead rank

"""A user's mistakes: the script prints one line with the mistake and its fix, and loses nothing."""

import os
import re
import socket
from typing import NamedTuple

import pytest

import guard
from tests import processes
from tests.mistakes import ALONE, FOUR, RESTARTS_ONCE, check_said_once, fake, python
from tests.processes import LESSONS, OWN_STORE, run

pytestmark = pytest.mark.quick


class Mistake(NamedTuple):
    lesson: str
    args: str
    says: str  # a regular expression
    env: dict = {}  # noqa: RUF012
    before: str = ""


def documented(lesson):
    return re.escape(LESSONS[lesson].run)


def path(name, says):
    return Mistake("multigpu", f"1 1 --checkpoint_path {name}", says)


OUT_OF_MEMORY = """
import torch
def forward(self, source):
    raise torch.OutOfMemoryError({!r})
torch.nn.Linear.forward = forward
"""
TOO_LARGE = (
    "CUDA out of memory. Tried to allocate 3.07 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 1.20 GiB is free. Process 7 has 76.00 GiB memory in use. See documentation."
)
NO_DRIVER = "CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions."
AT_LEAST_1 = "but must be at least 1"
BY_PYTHON = "no {} in the environment, start it with torchrun: "
MISTAKES = {
    "no torchrun": Mistake(
        "multigpu_torchrun", "50 10", BY_PYTHON.format("RANK") + documented("multigpu_torchrun")
    ),
    "half a launcher": Mistake(
        "multinode", "50 10", BY_PYTHON.format("WORLD_SIZE") + documented("multinode"),
        {"RANK": "0", "LOCAL_RANK": "0"},
    ),
    "a master without an address": Mistake(  # torch would ask for it for over half an hour
        "multinode", "2 1", "no address for nowhere.invalid: add it to /etc/hosts, or, if .*",
        ALONE | {"MASTER_ADDR": "nowhere.invalid"},
    ),
    "save_every 0": Mistake("multigpu", "50 0", f"save_every is 0, {AT_LEAST_1}"),
    "epochs -1": Mistake("single_gpu", "-1", f"total_epochs is -1, {AT_LEAST_1}"),
    "batch_size 0": Mistake("single_gpu", "1 1 --batch_size 0", f"batch_size is 0, {AT_LEAST_1}"),
    "not a number": Mistake("multigpu_torchrun", "ten", ".* total_epochs: .*'ten' .*--help.*"),
    "unknown flag": Mistake("multinode", "5 1 --lr=1", "unrecognized arguments: --lr=1 .*--help.*"),
    "NPROC 0": Mistake("multigpu", "", "NPROC is '0', but must be .* at least 1", {"NPROC": "0"}),
    "NPROC two": Mistake("multigpu", "", "NPROC is 'two', but must be .*", {"NPROC": "two"}),
    "more processes than GPUs": Mistake(
        "multigpu", "1 1",
        r"4 processes, but 2 GPUs: set NPROC=2, or CUDA_VISIBLE_DEVICES= \(empty\) .* CPU",
        {"NPROC": "4"}, fake(count=2),
    ),
    "more workers than GPUs": Mistake(
        "multinode", "1 1", "4 processes, but 1 GPU: set --nproc_per_node=1, or CUDA_VIS.* the CPU",
        FOUR, fake(count=1),
    ),
    "no such interface": Mistake(
        "multinode", "1 1", "GLOO_SOCKET_IFNAME is eth7, but no such interface .*",
        ALONE | {"GLOO_SOCKET_IFNAME": "eth7"},
    ),
    "no such interface in a worker": Mistake(
        "multigpu", "1 1", "GLOO_SOCKET_IFNAME is eth7, but no such interface .*",
        {"GLOO_SOCKET_IFNAME": "eth7", "NPROC": "1"},
    ),
    "a batch too large": Mistake(
        "single_gpu", "1 1",
        r"the GPU is out of memory \(Tried to allocate 3.07 GiB; GPU 0 .* 1.20 GiB is free; "
        r"Process 7 has .* in use\): lower --batch_size \(of the GPT --micro_batch_size\), or .*",
        before=OUT_OF_MEMORY.format(TOO_LARGE),
    ),
    "a GPU that is full": Mistake(
        "multinode", "1 1", r"the GPU is out of memory \(even its driver .*\): .*nvidia-smi.*",
        ALONE, OUT_OF_MEMORY.format(NO_DRIVER),
    ),
    "no folder": path("no/a.pt", r"cannot write to .*/no \(No such file .*\): pass another .*"),
    "a folder": Mistake(
        "multinode", "1 1 --checkpoint_path .",
        "--checkpoint_path .* is no file that you can read: pass another .*", ALONE,
    ),
    # Even root, which ignores permissions, cannot make a file there.
    "read-only folder": path("/proc/a.pt", r"cannot write to /proc \(.+\): pass another .*"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line(name, tmp_path):
    """If the name says GPUs, `fake` sets torch's answers about them."""
    case = MISTAKES[name]
    process = python(
        case.lesson, *case.args.split(), cwd=tmp_path, env=case.env, before=case.before
    )
    assert process.returncode == 2
    assert re.fullmatch(f"{case.lesson}.py: {case.says}\n", process.stderr), process.stderr
    assert "Epoch" not in process.stdout and os.listdir(tmp_path) == []


def test_torchrun_for_a_script_that_is_not_for_it(tmp_path, monkeypatch):
    variables, words = processes.command("multigpu_torchrun", nproc=1, launcher=RESTARTS_ONCE)
    words = [word.replace("multigpu_torchrun.py", "multigpu.py") for word in words]
    monkeypatch.setattr(processes, "command", lambda *_, **__: (variables, words))
    process = run("multigpu", cwd=tmp_path)
    assert process.status == 1 and process.lines == []
    documented = LESSONS["multigpu"].run
    check_said_once(process, "multigpu", f"not for torchrun, start it as documented: {documented}")


NO_INTERFACE = "GLOO_SOCKET_IFNAME is eth7, but no such interface has an address"
BAD_FILE = f"multigpu_torchrun.pt is damaged, or no checkpoint at all: {guard.AWAY}"


@pytest.mark.parametrize("says", [NO_INTERFACE, BAD_FILE])
def test_a_restart_ends_at_once_after_a_bad_checkpoint(says, tmp_path):
    """Then torchrun's table lacks the traceback. Another mistake may be gone at the restart."""
    (tmp_path / "multigpu_torchrun.pt").write_bytes(b"bad" * (says == BAD_FILE))
    env = OWN_STORE | ({"GLOO_SOCKET_IFNAME": "eth7"} if says == NO_INTERFACE else {})
    process = run("multigpu_torchrun", cwd=tmp_path, launcher=RESTARTS_ONCE, env=env)
    assert process.status == 1 and "exitcode  : 2" in process.err
    check_said_once(process, "multigpu_torchrun", says)
    assert (", in worker\n" in process.err) == (says == NO_INTERFACE), process.err


def test_a_manual_that_lost_its_indent_as_in_python_3_13(monkeypatch):
    monkeypatch.setattr(guard, "TORCHRUN", True)
    with pytest.raises(guard.UserError, match=r"documented: python multigpu.py 50 10$"):
        guard.check_launcher("Train.\n\npython multigpu.py 50 10\n", 0)


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("localhost", 0)) as server:
        env = ALONE | {"MASTER_PORT": str(server.getsockname()[1])}
        process = python("multinode", 1, 1, cwd=tmp_path, env=env)
    assert process.returncode == 1
    assert re.fullmatch("multinode.py: .*address already in use\n", process.stderr), process.stderr

"""A user's mistakes: the script prints one line with the mistake and its fix, and loses nothing."""

import os
import re
import socket
import subprocess
import sys
from typing import NamedTuple

import pytest

from tests import processes
from tests.mistakes import ALONE, FOUR, RESTARTS_ONCE, check_said_once, fake, python
from tests.processes import LESSONS, LIMIT, ROOT, run

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


AT_LEAST_1 = r"but must be at least 1 and below 2\^63"
BY_PYTHON = "no {} in the environment, start it with torchrun: "
MISTAKES = {
    "no torchrun": Mistake(
        "multigpu_torchrun", "50 10", BY_PYTHON.format("RANK") + documented("multigpu_torchrun")
    ),
    "half a launcher": Mistake(
        "multinode", "50 10", BY_PYTHON.format("WORLD_SIZE") + documented("multinode"),
        {"RANK": "0", "LOCAL_RANK": "0"},
    ),
    "RANK 5 of 2": Mistake(
        "multigpu_torchrun", "1 1", "RANK is 5, but must be below WORLD_SIZE, 2",
        ALONE | {"RANK": "5", "WORLD_SIZE": "2"},
    ),
    "LOCAL_RANK 7 of 1": Mistake(  # as if the rank of all nodes were given
        "multinode", "1 1", "LOCAL_RANK is 7, but must be below LOCAL_WORLD_SIZE, 1",
        ALONE | {"LOCAL_RANK": "7"},
    ),
    "an error file, but no torchrun": Mistake(
        "single_gpu", "abc", ".* total_epochs: .*'abc' .*", {"TORCHELASTIC_ERROR_FILE": "/x"}
    ),
    "a number of 5,000 digits": Mistake(
        "single_gpu", f"1 1 --batch_size {5000 * '9'}", ".* invalid int value: '9{99,150} … .*"
    ),
    "RANK -1": Mistake(
        "multinode", "1 1", "RANK is '-1', but must be a number from 0 to 999999",
        ALONE | {"RANK": "-1"},
    ),
    "a node of abc": Mistake(
        "multinode", "1 1", "LOCAL_WORLD_SIZE is 'abc', but must be a number from 0 to 999999",
        ALONE | {"LOCAL_WORLD_SIZE": "abc"},
    ),
    "too many ranks": Mistake(
        "multinode", "1 1", "WORLD_SIZE is '1{9}', but must be a number from 0 to 999999",
        ALONE | {"WORLD_SIZE": "1" * 9},
    ),
    "a port of 99999": Mistake(
        "multigpu_torchrun", "1 1", "MASTER_PORT is '99999', but must be a number from 0 to 65535",
        ALONE | {"MASTER_PORT": "99999"},
    ),
    "few open files": Mistake(
        "multigpu", "1 1", "at most 40 files may be open here, too few: ulimit -n 1024",
        before="import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))",
    ),
    "an address of a..b": Mistake(
        "multinode", "1 1", r"no address for a\.\.b: add it to /etc/hosts, .*",
        ALONE | {"MASTER_ADDR": "a..b"},
    ),
    "save_every 0": Mistake("multigpu", "50 0", f"save_every is 0, {AT_LEAST_1}"),
    "epochs -1": Mistake("single_gpu", "-1", f"total_epochs is -1, {AT_LEAST_1}"),
    "batch_size 10^30": Mistake(
        "single_gpu", f"1 1 --batch_size {10**30}", f"batch_size is 10+, {AT_LEAST_1}"
    ),
    "batch_size 0": Mistake("single_gpu", "1 1 --batch_size 0", f"batch_size is 0, {AT_LEAST_1}"),
    "not a number": Mistake("multigpu_torchrun", "ten", ".* total_epochs: .*'ten' .*--help.*"),
    "unknown flag": Mistake("multinode", "5 1 --lr=1", "unrecognized arguments: --lr=1 .*--help.*"),
    "NPROC 0": Mistake("multigpu", "", "NPROC is '0', but must be .* from 1 to .*", {"NPROC": "0"}),
    "NPROC huge": Mistake("multigpu", "", "NPROC is .9{40}., but .*", {"NPROC": 5000 * "9"}),
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
    "no folder": path("no/a.pt", r"cannot write to .*/no \(No such file .*\): pass another .*"),
    "a folder": Mistake(
        "multinode", "1 1 --checkpoint_path .",
        "--checkpoint_path .* is no file that you can read: pass another .*", ALONE,
    ),
    "a long name": path("x" * 220, r"cannot write to .* \(File name too long\): pass another .*"),
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


def test_a_line_end_in_a_path_does_not_part_the_message(tmp_path):
    process = python("single_gpu", "1", "1", "--checkpoint_path", "a\nb/c.pt", cwd=tmp_path)
    assert process.returncode == 2 and len(process.stderr.splitlines()) == 1
    assert "a b (No such file or directory)" in process.stderr


def test_a_link_to_itself_is_not_replaced(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    process = python("multinode", "1", "1", "--checkpoint_path", "loop", cwd=tmp_path, env=ALONE)
    assert process.returncode == 2 and "loop is no file that you can read" in process.stderr
    assert os.readlink(tmp_path / "loop") == "loop"


def test_torchrun_for_a_script_that_is_not_for_it(tmp_path, monkeypatch):
    variables, words = processes.command("multigpu_torchrun", nproc=1, launcher=RESTARTS_ONCE)
    words = [word.replace("multigpu_torchrun.py", "multigpu.py") for word in words]
    monkeypatch.setattr(processes, "command", lambda *_, **__: (variables, words))
    process = run("multigpu", cwd=tmp_path)
    assert process.status == 1 and process.lines == []
    documented = LESSONS["multigpu"].run
    check_said_once(process, "multigpu", f"not for torchrun, start it as documented: {documented}")


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("localhost", 0)) as server:
        env = ALONE | {"MASTER_PORT": str(server.getsockname()[1])}
        process = python("multinode", 1, 1, cwd=tmp_path, env=env)
    assert process.returncode == 1
    assert re.fullmatch("multinode.py: .*address already in use\n", process.stderr), process.stderr


def test_letters_that_cannot_be_encoded(tmp_path):
    process = run("multinode", 1, 1, "--foo=\udcff", cwd=tmp_path, launcher=RESTARTS_ONCE)
    says = "unrecognized arguments: --foo=\\udcff (--help lists the options)"
    check_said_once(process, "multinode", says)


@pytest.mark.parametrize("lesson", ["single_gpu", "multinode"])
def test_python_without_docstrings(lesson, tmp_path):
    words = [sys.executable, "-OO", ROOT / LESSONS[lesson].file]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    says = "python -OO drops the docstring, which says how to start this: use -O"
    assert (ended.returncode, ended.stderr) == (2, f"{lesson}.py: {says}\n")
    assert os.listdir(tmp_path) == []

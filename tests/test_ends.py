"""However a run ends, it leaves no process and names the process that ended it."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from tests import processes
from tests.mistakes import ALONE
from tests.processes import ROOT, Process, check_gone
from tools.processes import environment, run


def to_all(process, number):
    os.killpg(process.process.pid, number)  # as a terminal does at Ctrl-C


def to_parent(process, number):
    os.kill(process.process.pid, number)


def to_rank(process, number):
    os.kill(process.workers()[-1], number)


def sigint(action):
    """Heed SIGINT, or ignore it as a shell makes a command with `&` do."""
    return lambda: signal.signal(signal.SIGINT, action)


INTERRUPTED = "multigpu.py: interrupted"
TRACE = "Traceback (most recent call last):"


# Receiver, signal, exit status, and the only line on stderr except torch's warnings.
SIGNALS = {
    "Ctrl-C": (to_all, signal.SIGINT, 130, INTERRUPTED),
    "SIGINT": (to_parent, signal.SIGINT, 130, INTERRUPTED),
    "SIGTERM": (to_parent, signal.SIGTERM, -signal.SIGTERM, None),
    "SIGKILL of a rank": (to_rank, signal.SIGKILL, 1, "multigpu.py: process 1 .* signal SIGKILL"),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_ends_every_process(name, tmp_path):
    receiver, number, status, says = SIGNALS[name]
    prelude = sigint(signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)
    with Process("multigpu", 1_000_000, 1000, cwd=tmp_path, prelude=prelude) as process:
        process.wait_for(r"Epoch +3 \|")
        assert len(process.workers()) == 2 and len(process.alive()) >= 3
        receiver(process, number)
        assert process.wait() == status
        check_gone(process)
    if says is not None:
        lines = [line for line in process.err.splitlines() if not line.startswith("W")]
        assert len(lines) == 1 and re.fullmatch(says, lines[0]), process.err


def test_what_the_script_says_comes_before_the_traceback_of_torchrun(tmp_path):
    with Process("multigpu_torchrun", 1_000_000, 1000, cwd=tmp_path) as process:
        process.wait_for(r"Epoch +3 \|")
        to_parent(process, signal.SIGINT)
        assert process.wait() == 1
        check_gone(process)
    lines = process.err.splitlines()
    ours, trace = (lines.index(line) for line in ("multigpu_torchrun.py: interrupted", TRACE))
    assert ours < trace and lines.count(TRACE) == 1 and lines[-1].endswith("got signal: 2")


# A rank that closes its connections long before it ends, so that the other fails meanwhile.
SLOW_TO_END = """
            import gc
            from multiprocessing import util
            util.Finalize(None, time.sleep, (20,), exitpriority=1)
            self.model = loss = None
            dist.destroy_process_group()
            gc.collect()
            time.sleep(0.5)
"""
CRASHES = {"rank 0": (0, ""), "rank 1": (1, ""), "rank 1, slow to end": (1, SLOW_TO_END)}


def crash(lesson, case, folder, monkeypatch):
    """Make `lesson` fail in a rank right after the first backward pass."""
    rank, first = CRASHES[case]
    for name in ("utils.py", "guard.py"):
        shutil.copy(ROOT / name, folder)
    source = (ROOT / f"{lesson}.py").read_text()
    line = "        loss.backward()\n"
    assert source.count(line) == 1
    crashing = f'        if dist.get_rank() == {rank}:{first}\n            {{}}["boom"]\n'
    (folder / f"{lesson}.py").write_text(source.replace(line, line + crashing))
    monkeypatch.setattr(processes, "ROOT", folder)


@pytest.mark.parametrize("case", CRASHES)
def test_a_crash_ends_every_process_and_shows_its_cause(case, tmp_path, monkeypatch):
    crash("multigpu", case, tmp_path, monkeypatch)
    with Process("multigpu", 1_000_000, 1000, cwd=tmp_path) as process:
        assert process.wait() == 1
        check_gone(process)
    assert f"Process {CRASHES[case][0]} terminated with the following error" in process.err
    assert '{}["boom"]' in process.err and "KeyError: 'boom'" in process.err
    assert "closed by peer" not in process.err and "lost another" not in process.err


THREADS = """
import gc, os, sys
gc.disable()  # it may come by in time, and hide what keeps the group
gc.enable = lambda: None
sys.path.insert(0, os.path.dirname(sys.argv[1]))
del sys.argv[0]
import multigpu_torchrun as lesson
def threads():
    tasks = (f"/proc/self/task/{task}/comm" for task in os.listdir("/proc/self/task"))
    return sorted(open(task).read().strip() for task in tasks)
destroy = lesson.dist.destroy_process_group
def show_and_destroy():
    print("with the group:", *threads())
    destroy()
    print("without:", *threads())
lesson.dist.destroy_process_group = show_and_destroy
lesson.worker(lesson.utils.parse_args(lesson.__doc__, resume=True))
"""


def test_no_thread_of_the_group_outlives_it(tmp_path):
    """Such a thread may hold tensors while the interpreter exits, which sometimes is a SIGABRT.

    So DDP does not, either. It would wait for these threads with Python's lock, which may hang.
    """
    process = run(
        [sys.executable, "-c", THREADS, ROOT / "multigpu_torchrun.py", "1", "1"],
        cwd=tmp_path,
        env=environment(**ALONE, OMP_NUM_THREADS="1"),
        stderr=subprocess.PIPE,
    )
    assert (process.status, process.err) == (0, "")
    (said, before), (then, after) = (line.split(":") for line in process.lines[-2:])
    assert (said, then) == ("with the group", "without")
    assert "gloo" not in after and "tcpstore" not in after
    # Three of gloo, which torch 2.9 does not name, and one of the store.
    assert len(after.split()) <= len(before.split()) - 4

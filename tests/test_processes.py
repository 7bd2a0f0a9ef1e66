"""tools/processes.py, which starts and ends every command of the tools and the tests."""

import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.processes import ROOT, alive
from tools import processes
from tools.errors import UserError
from tools.processes import Process, environment

pytestmark = pytest.mark.quick

# A Python that starts a command with this module, as `tools.series run` in a page does. It also
# starts one that it never waits for.
INNER = """
import subprocess, sys, time
from tools.processes import Process
ended = subprocess.Popen(["true"])
Process(["sh", "-c", "sleep 3000 & echo inner; wait"], say=print, env={"PATH": "/usr/bin:/bin"})
time.sleep(3000)
"""


def session(command):
    """A shell line that starts a command in its own session, without our output."""
    python = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"
    return f"{sys.executable} -c '{python}' {command} >/dev/null 2>&1 &"


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_all_that_a_command_leaves_behind_is_ended():
    with Process(["sh", "-c", f"{session('sleep 3000')} echo started"]) as process:
        assert process.wait() == 0 and process.lines == ["started"]
        until(lambda: [left.name() for left in process.alive()] == ["sleep"])
        (left,) = process.kill()
    assert not alive(left.pid) and process.alive() == []


def test_who_ends_a_command_ends_what_that_has_started_by_this_module():
    words = [sys.executable, "-u", "-c", INNER]
    with Process(words, cwd=ROOT) as process:
        process.wait_for("inner")
        until(lambda: len(process.alive()) == 3 and len(process.tree()) == 4)
        process.process.kill()
        process.process.wait()
        assert len(process.alive()) == 2
    assert process.alive() == []


def test_who_kills_waits_for_the_end():
    class Slow(psutil.Process):
        """Takes a while to die, and has no mark meanwhile."""

        def kill(self):
            threading.Timer(0.5, super().kill).start()

    with Process(["sleep", "3000"]) as process:
        found = iter([[Slow(process.process.pid)]])
        processes.kill(lambda: next(found, []))
        assert process.alive() == []


def test_every_wait_has_a_limit_and_says_what_was_printed():
    words = ["sh", "-c", "echo no >&2; echo begun; sleep 3000"]
    with Process(words, stderr=subprocess.PIPE) as process:
        process.wait_for("begun")
        with pytest.raises(UserError, match=r"(?s)no line matched 'x': sh .*begun\nstderr:\nno"):
            process.wait_for("x", limit=0.5)
    with pytest.raises(UserError, match=r"still running after 1 s: sleep 3000"):
        processes.run(["sleep", "3000"], limit=1)
    # When it has ended, another process still has its output open.
    with pytest.raises(UserError, match=r"still running after 1 s: sh -c 'sleep 3000 &'"):
        processes.run(["sh", "-c", "sleep 3000 &"], limit=1)
    with Process(["echo", "over"]) as process, pytest.raises(UserError, match="no line matched"):
        process.wait_for("x")  # at once, because no line can follow


def test_a_command_starts_clean_unless_told(monkeypatch):
    for name in ("RANK", "TORCHELASTIC_RUN_ID", "SLURM_PROCID", "NPROC", "KEPT"):
        monkeypatch.setenv(name, "launcher")
    lines = processes.run(["env"], env=environment(NPROC="3")).lines
    assert [line for line in lines if line.endswith("launcher")] == ["KEPT=launcher"]
    assert "NPROC=3" in lines


def test_without_psutil_a_tool_says_where_it_is():
    ran = processes.run([sys.executable, "-S", "-m", "tools.cluster", "1"], cwd=ROOT)
    assert ran.status == 2 and len(ran.lines) == 1
    assert " has no psutil: source .venv/bin/activate, try again" in ran.out

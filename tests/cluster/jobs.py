"""Run commands on a cluster's nodes, and read their output line by line."""

import bisect
import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.processes import LIMIT, ROOT
from tools.processes import Process

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
FILES = ("multinode.py", "utils.py", "guard.py")
SHORT = ["multinode.py", "4", "2", "--batch_size", "32"]
PATIENCE = 180  # seconds, with a scheduler; it catches hangs and says nothing about speed
POSSIBLE = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("ip")


def missing(programs):
    absent = [name for name in programs if not shutil.which(name, path="/usr/sbin:/usr/bin:/bin")]
    packages = " ".join(dict.fromkeys(programs[name] for name in absent))
    return pytest.mark.skipif(
        not POSSIBLE or bool(absent),
        reason=f"apt install {packages}" if absent else "needs Linux, root and iproute2",
    )


def lay(folder, *more):
    """Copy the lesson and `more` of the project into a folder."""
    for name in (*FILES, *more):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def documented(recipe, program):
    """The words of the command that a recipe of launch/ documents for a program."""
    text = (ROOT / "launch" / recipe).read_text().replace("\\\n#", "")
    return re.search(rf"(?m)^# +({program} .*)$", text)[1].split()


def crash(folder, rank):
    """Write crashing.py, which fails on this rank after the first backward. Returns that line."""
    lay(folder)
    line = f'dist.get_rank() == {rank} and {{}}["boom"]'
    backward = "        loss.backward()\n"
    source = (ROOT / "multinode.py").read_text()
    assert source.count(backward) == 1
    (folder / "crashing.py").write_text(source.replace(backward, f"{backward}        {line}\n"))
    return line


def close(one, other, tolerance=1e-6):
    """Whether the weights in two checkpoint files are equal within `tolerance`."""
    weights, others = (torch.load(file)["model"] for file in (one, other))
    return weights.keys() == others.keys() and all(
        (weights[key] - others[key]).abs().max() <= tolerance for key in weights
    )


class Command(Process):
    """A command on one node. `times` has the time of each line, in seconds since the start."""

    def __init__(self, cluster, node, words, env=None):
        self.started, self.times = time.monotonic(), []
        command = cluster.command(node, words, {"PATH": PATH, **(env or {})})
        super().__init__(**command, say=lambda line: self.times.append(self.now))

    @property
    def now(self):
        return time.monotonic() - self.started

    def wait_for(self, pattern, since=0.0, limit=LIMIT):
        """When a line matched, after `since` seconds. Fails the test if no line does."""
        number = super().wait_for(pattern, bisect.bisect_left(self.times, since), limit)
        return self.times[number - 1]


def ran(nodes, words, **env):
    command = Command(nodes, "node1", [str(word) for word in words], env)
    assert command.wait(PATIENCE) == 0, command.out
    return command.out


def facts(said):
    """What the processes of facts.py printed, by rank."""
    return sorted(re.findall(r"facts (\d+) (\d+) (\w+) (\S+)", said))

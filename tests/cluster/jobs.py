"""Commands that run on the nodes of a cluster, and what they say, line by line."""

import bisect
import os
import shutil
import sys
import time
from pathlib import Path

import torch

from tests.processes import LIMIT, ROOT
from tools.processes import Process

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
FILES = ("multinode.py", "utils.py", "guard.py")
SHORT = ["multinode.py", "4", "2", "--batch_size", "32"]


def lay(folder, *more):
    """Copy the lesson into a folder, and what else of the project is named."""
    for name in (*FILES, *more):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)


def crash(folder, rank):
    """Lay a lesson, crashing.py, that fails on this rank after the first backward. The line."""
    lay(folder)
    line = f'dist.get_rank() == {rank} and {{}}["boom"]'
    backward = "        loss.backward()\n"
    source = (ROOT / "multinode.py").read_text()
    assert source.count(backward) == 1
    (folder / "crashing.py").write_text(source.replace(backward, f"{backward}        {line}\n"))
    return line


def close(one, other, tolerance=1e-6):
    """Whether the weights in two checkpoint files differ nowhere by more than that."""
    weights, others = (torch.load(file)["model"] for file in (one, other))
    return weights.keys() == others.keys() and all(
        (weights[key] - others[key]).abs().max() <= tolerance for key in weights
    )


class Command(Process):
    """A command on one node. `times` are those of its lines, in seconds since the start."""

    def __init__(self, cluster, node, words, env=None):
        self.started, self.times = time.monotonic(), []
        command = cluster.command(node, words, {"PATH": PATH, **(env or {})})
        super().__init__(**command, say=lambda line: self.times.append(self.now))

    @property
    def now(self):
        return time.monotonic() - self.started

    def wait_for(self, pattern, since=0.0, limit=LIMIT):
        """When a line said that, after `since` seconds. Fails the test if none does."""
        number = super().wait_for(pattern, bisect.bisect_left(self.times, since), limit)
        return self.times[number - 1]

"""Commands that run on the nodes of a cluster, and what they say, line by line."""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

from tests.processes import LIMIT, ROOT

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


class Command:
    """A command on one node. `lines` grow while it runs: (seconds since the start, text)."""

    def __init__(self, cluster, node, words, env=None):
        self.node, self.lines, self.started = node, [], time.monotonic()
        self.process = cluster.run(
            node, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={"PATH": PATH, **(env or {})}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append((time.monotonic() - self.started, line.rstrip("\n")))
                self._changed.notify_all()

    @property
    def out(self):
        return "\n".join(f"{seconds:5.1f} {text}" for seconds, text in self.lines)

    @property
    def now(self):
        return time.monotonic() - self.started

    def wait_for(self, pattern, since=0.0, limit=LIMIT):
        """When a line said that, after `since` seconds. Fails the test if none does."""
        end = time.monotonic() + limit
        with self._changed:
            while True:
                for seconds, text in self.lines:
                    if seconds >= since and re.search(pattern, text):
                        return seconds
                if time.monotonic() > end or not self._reader.is_alive():
                    raise AssertionError(f"{self.node}: no line matched {pattern!r}\n{self.out}")
                self._changed.wait(0.5)

    def wait(self, limit=LIMIT):
        """The exit status, when all it has started has let go of its output."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.node}: still runs after {limit} s\n{self.out}") from None
        self._reader.join(30)
        assert not self._reader.is_alive(), f"{self.node}: something is left over\n{self.out}"
        return status

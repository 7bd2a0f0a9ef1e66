"""Kill a lesson at work, and compare what is left with a run that nobody touched."""

import os
import random
import re
import signal
from pathlib import Path

import torch

from tests.processes import epochs

# Put on PYTHONPATH as sitecustomize.py: every save waits at each fsync, long enough to be hit.
SLOW_SAVES = """
import os, time
fsync = os.fsync
def slow(descriptor):
    time.sleep(0.4)
    fsync(descriptor)
os.fsync = slow
"""


def slow_saves(folder):
    """An environment in which a save takes most of a second."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SLOW_SAVES)
    return {"PYTHONPATH": str(folder)}


def kill_worker(process, choice=random):
    """SIGKILL for one of the workers, whichever `choice` picks; returns whether there was one."""
    workers = process.workers()
    if not workers:
        return False
    try:
        os.kill(choice.choice(workers), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def same(one, other):
    """Whether two checkpoint files hold equal tensors and numbers throughout."""
    return _same(torch.load(one), torch.load(other))


def _same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def most_repeated(lines, save_every):
    """Check the epochs of a log; returns how many of them the worst restart ran again.

    Every restart must go on right after the newest saved epoch, and no epoch may be missing.
    """
    worst, last, saved = 0, 0, 0
    for line in lines:
        if found := re.match(r"Epoch +(\d+) \| checkpoint", line):
            saved = max(saved, int(found[1]))
        for epoch in epochs([line]):
            if epoch != last + 1:  # a restart: a save may have ended just before its line was lost
                assert epoch - 1 in (saved, saved + save_every), f"epoch {epoch} after {last}"
                worst = max(worst, last - epoch + 1)
            last = epoch
    return worst


def leftovers(folder):
    """What lies in `folder` besides checkpoints and the tests' own temporary folder."""
    return [path.name for path in Path(folder).iterdir() if path.name not in (".tmp",)]

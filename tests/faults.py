"""Kill a running lesson, and compare its checkpoint with that of an undisturbed run."""

import os
import random
import re
import signal
from pathlib import Path

import torch

from tests.processes import epochs

# As sitecustomize.py on PYTHONPATH: every save waits at each fsync, so that a kill can hit it.
SLOW_SAVES = """
import os, time
fsync = os.fsync
def slow(descriptor):
    time.sleep({seconds})
    fsync(descriptor)
os.fsync = slow
"""

# The same way: each process's second save waits while there is a file "hold" beside this one. A
# process that has lost its peer is slow to write torchrun's error file, and is ended meanwhile.
HELD_SAVES = """
import itertools, json, os, time
fsync, dump, calls = os.fsync, json.dump, itertools.count(1)
def slow(*args):
    time.sleep(3)
    dump(*args)
json.dump = slow
def hold(descriptor):
    if next(calls) == 3:  # a save calls it twice, for the file and for its folder
        while os.path.exists(os.path.join(os.path.dirname(__file__), "hold")):
            time.sleep(0.05)
    fsync(descriptor)
os.fsync = hold
"""

# The same way: copy every save to this folder, under its number.
KEPT_SAVES = """
import itertools, os, shutil
replace, numbers = os.replace, itertools.count(1)
def keep_and_replace(source, target):
    if target.endswith(".pt"):
        shutil.copy(source, os.path.join(os.path.dirname(__file__), f"{next(numbers)}.pt"))
    replace(source, target)
os.replace = keep_and_replace
"""


def slow_saves(folder, seconds=0.4):
    """An environment in which a save takes twice as many seconds."""
    return _customized(folder, SLOW_SAVES.format(seconds=seconds))


def held_saves(folder):
    """An environment in which no second save ends while `folder / "hold"` exists."""
    env = _customized(folder, HELD_SAVES)
    (folder / "hold").touch()
    # torchrun looks at its workers once a second, when those that lost their peer are writing.
    return env | {"PET_MONITOR_INTERVAL": "1"}


def kept_saves(folder):
    """An environment that copies the first save to `folder / "1.pt"`, and so on."""
    return _customized(folder, KEPT_SAVES)


def _customized(folder, code):
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": str(folder)}


def kill_worker(process, choice=random):
    """SIGKILL a worker that `choice` picks. Returns whether there was one."""
    workers = process.workers()
    if not workers:
        return False
    try:
        os.kill(choice.choice(workers), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def same(one, other):
    """Whether two checkpoints, or their files, hold equal tensors and numbers."""
    loaded = [
        torch.load(it, map_location="cpu") if isinstance(it, Path) else it for it in (one, other)
    ]
    return _same(*loaded)


def _same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


def most_repeated(lines, save_every):
    """Check the epochs of a log. Returns how many the worst restart ran again.

    Every restart must resume right after the newest saved epoch, and no epoch may be missing.
    """
    worst, last, saved = 0, 0, 0
    for line in lines:
        if found := re.match(r"Epoch +(\d+) \| checkpoint", line):
            saved = max(saved, int(found[1]))
        for epoch in epochs([line]):
            if epoch != last + 1:  # a restart; the line of its last save may be missing
                assert epoch - 1 in (saved, saved + save_every), f"epoch {epoch} after {last}"
                worst = max(worst, last - epoch + 1)
            last = epoch
    return worst


def leftovers(folder):
    """The files in `folder`, except checkpoints and the tests' own temporary folder."""
    return [path.name for path in Path(folder).iterdir() if path.name not in (".tmp",)]

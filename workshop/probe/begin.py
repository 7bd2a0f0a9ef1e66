"""The workshop's part of ddp_doctor's probe, which runs this file before the script."""

import functools
import gc
import sys
import threading
import time
from pathlib import Path

import _ddp_doctor as recorder
from _ddp_doctor import imports

gc.set_threshold(1_000_000)  # the collector takes a sixth of `import torch`
recorder.__path__.append(str(Path(__file__).parent))
recorder.PARTS.append("samples")


def _watch_utils(utils):
    if choose := getattr(utils, "set_device", None):
        utils.set_device = recorder.around(choose, lambda i: recorder.fact("device", index=i))
    if getattr(utils, "write", None):
        _slow_down(utils, "write", 0.2)
    if parse := getattr(utils, "parse_args", None):
        utils.parse_args = recorder.around(parse, _note_arguments)


def before(function, note):
    """`function`, but `note` is called first, with its arguments."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        note(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapped


def _slow_down(place, name, seconds):
    """A thread that saves takes a while, so that a script which does not wait for it is found."""

    def wait(*_, **__):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)

    setattr(place, name, before(getattr(place, name), wait))


def _note_arguments(manual, resume=False, *_, **__):
    recorder.fact("arguments", resume=bool(resume))


def _watch_asking(module):
    """A script may look for a GPU by itself. What it then chooses cannot be seen on a CPU."""

    def note():
        if sys._getframe(2).f_globals["__name__"] in ("__main__", "__mp_main__"):
            recorder.fact("device", index=None)

    module.is_available = before(module.is_available, note)


def _watch_shards(filesystem):
    _slow_down(filesystem.FileSystemWriter, "finish", 0.6)  # writes .metadata


imports.after("utils", _watch_utils)
imports.after("torch.distributed.checkpoint.filesystem", _watch_shards)
for name in ("torch.cuda", "torch.accelerator"):
    imports.after(name, _watch_asking)

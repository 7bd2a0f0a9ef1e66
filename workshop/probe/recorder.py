"""Record what a training process does, without changing it: one JSON object per line.

The probe wraps functions that every script must call, however it is written. Once `import torch`
has ended, training.py and communication.py watch torch. workshop/facts.py explains the lines. A
line costs some microseconds. The probe writes it before the recorded call continues, so even a
process that hangs or is killed leaves its last place.
"""

import atexit
import contextlib
import faulthandler
import functools
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MOST_LINES = 2000  # of stdout to record
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE")

_running = threading.local()  # its attribute `watched`: a call is, and calls inside are no facts
_facts = Path(os.environ["WORKSHOP_FACTS"])
_theirs = os.path.realpath(os.environ.get("WORKSHOP_FOLDER", os.getcwd())) + os.sep
_file = None
_synced = {}  # by inode: the file's state when os.fsync sent it to the disk


def start():
    """Start recording. Each Python calls this once, before the script."""
    _open()
    os.register_at_fork(after_in_child=_forked)
    _listen()
    os._exit = around(os._exit, _ended)
    atexit.register(_ended, None)
    os.fsync = around(os.fsync, _note_sync)
    sys.addaudithook(_audit)
    sys.meta_path[:0] = [After("torch", _watch_torch), After("utils", _watch_utils)]


def _open():
    global _file
    name = _facts / f"{os.getpid()}.jsonl"
    _file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stacks = open(name.with_suffix(".stack"), "w")  # noqa: SIM115 - faulthandler keeps it open
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    ranks = {name.lower(): os.environ.get(name, "") for name in RANKS}
    fact(
        "process",
        parent=os.getppid(),
        argv=sys.orig_argv[1:],
        attempt=attempt(),
        node=os.environ.get("WORKSHOP_NODE"),
        torchrun="TORCHELASTIC_RUN_ID" in os.environ,
        **{name: int(value) for name, value in ranks.items() if value.isdecimal()},
    )


def fact(kind, **fields):
    """Write one fact."""
    if _file is None and kind in ("joining", "batch"):
        _open()  # this forked process is a rank
    if _file is not None:
        line = json.dumps({"kind": kind, "t": time.monotonic(), "pid": os.getpid(), **fields})
        os.write(_file, line.encode() + b"\n")


def guarded(note):
    """`note`, but an exception in it becomes a fact and goes no further."""

    @functools.wraps(note)
    def wrapped(*args, **kwargs):
        try:
            note(*args, **kwargs)
        except Exception as error:
            fact("unobserved", part=note.__name__, error=repr(error)[:300])

    return wrapped


def attempt():
    """How many times the script has started before: earlier acts, and restarts."""
    acts = int(os.environ.get("WORKSHOP_ACT", 0))
    return acts + int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def around(function, before=None, after=None):
    """`function`, with calls of `before` and `after` around it, with the same arguments.

    Neither is called in a thread that already runs a function of this kind.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if getattr(_running, "watched", False):
            return function(*args, **kwargs)
        if before:
            before(*args, **kwargs)
        _running.watched = True
        try:
            result = function(*args, **kwargs)
        finally:
            _running.watched = False
        if after:
            after(*args, **kwargs)
        return result

    return wrapped


def place(path):
    """A path relative to the run's folder, as in the facts. A link is a name, too."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name).removeprefix(_theirs)


def where():
    """The innermost running line of the learner's files; None if there is none."""
    frame = sys._getframe(1)
    while frame:
        if _is_theirs(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def raised(error):
    """Record an exception that ends this process."""
    trace, line = error.__traceback__, None
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if _is_theirs(file):
            line = f"{os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        line = f"{os.path.basename(error.filename or '')}:{error.lineno}"
    # mp.spawn's error is a worker's whole traceback.
    parts = str(error).split("\n")[-2:] if "Traceback" in str(error) else str(error).split("\n")
    message = " ".join(" ".join(parts).split())[:300]
    fact("raised", type=type(error).__name__, message=message, where=line)


@functools.cache
def _is_theirs(file):
    within = file[:1] != "<" and os.path.realpath(file).startswith(_theirs)
    return within and os.path.basename(file) not in ("utils.py", "guard.py")


def _listen():
    """Record every line on stdout."""
    write, waiting, heard = sys.stdout.write, "", 0

    def listen(text):
        nonlocal waiting, heard
        *lines, waiting = (waiting + text).split("\n")
        for line in lines:
            if heard < MOST_LINES:
                fact("said", text=line[:300])
            heard += 1
        return write(text)

    sys.stdout.write = listen


def _forked():
    global _file
    _file = None  # a DataLoader worker, unless it trains


def _ended(status):
    cause = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    fact("exit", status=status, cause=os.path.isfile(cause))


@guarded
def _note_sync(file):
    stat = os.fstat(file if isinstance(file, int) else file.fileno())
    _synced[stat.st_ino] = stat.st_size, stat.st_mtime_ns


def _audit(event, args):
    if _file is None:
        return
    if event == "os.rename" and isinstance(args[0], str | os.PathLike):
        with contextlib.suppress(OSError):
            stat = os.stat(args[0])
            synced = _synced.get(stat.st_ino) == (stat.st_size, stat.st_mtime_ns)
            fact("renamed", source=place(args[0]), path=place(args[1]), synced=synced)
    elif event == "os.remove" and isinstance(args[0], str | os.PathLike):
        fact("removed", path=place(args[0]))
    elif event == "open" and isinstance(args[0], str | os.PathLike) and args[2] & _WRITE:
        if os.path.realpath(args[0]).startswith(_theirs):
            fact("opened", path=place(args[0]))
    elif event == "socket.bind" and isinstance(args[1], tuple):
        fact("bound", port=args[1][1])
    elif event == "sys.excepthook":
        raised(args[2])


_WRITE = os.O_WRONLY | os.O_RDWR


class After(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as its import has ended."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.then(module)

            spec.loader.exec_module = exec_module
        return spec


def _watch_torch(torch):
    for part in ("training", "communication"):
        try:
            importlib.import_module(f"{__name__}.{part}").watch()
        except Exception as error:  # another torch version: the run has fewer facts
            fact("unobserved", part=part, error=repr(error)[:300])


def _watch_utils(utils):
    if choose := getattr(utils, "set_device", None):
        utils.set_device = around(choose, lambda index: fact("device", index=index))

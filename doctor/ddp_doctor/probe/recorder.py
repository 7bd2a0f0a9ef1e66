"""Record what a training process does, without changing it: one JSON object per line.

The probe wraps functions that every script must call, however it is written. Once `import torch`
has ended, the other files of this folder watch torch. fact_kinds.py lists the lines. A
line costs some microseconds. The probe writes it before the recorded call continues, so even a
process that hangs or is killed leaves its last place.
"""

import contextlib
import faulthandler
import functools
import importlib.util
import json
import os
import signal
import sys
import sysconfig
import threading
import time
from pathlib import Path
from traceback import walk_stack

# DOCTOR_PARTS may add some
PARTS = ["passes", "optimizers", "loaders", "checkpoint_calls", "restored", "precision",
         "communication", "split_layers", "seeds", "fault"]  # fmt: skip
MOST_CALLS = 20_000  # of those that may wait to record, each with its line
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
ACT = int(os.environ.get("DOCTOR_ACT", 0))
EVERY = "DOCTOR_EVERY" in os.environ  # look at every step and call, whatever it costs
SHARE = 0.05  # of a process's time that the probe may take

running = threading.local()  # its attribute `watched`: a call is, and calls inside are no facts
counts = {}  # written at the end: steps, forward passes and the like
compiling = bool  # becomes torch.compiler.is_compiling
at_end = []  # functions to call before the process ends
spent = 0.0  # seconds in our own code

notes = Path(os.path.realpath(os.environ["DOCTOR_FACTS"]))
homes = [os.path.realpath(home) + os.sep for home in os.environ["DOCTOR_HOME"].split(os.pathsep)]
_libraries = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "purelib", "platlib")),
    os.path.dirname(os.path.realpath(__file__)) + os.sep,
)
began = time.perf_counter()
_file = _newest = None
_held = []  # of a forked process, until it is known to be a rank


def start():
    """Start recording. Each Python calls this once, before the script."""
    _open()
    os.register_at_fork(after_in_child=_forked)
    importlib.import_module(f"{__name__}.system").watch()
    importlib.import_module(f"{__name__}.imports").after("torch", _watch_torch)
    for path in filter(None, os.environ.get("DOCTOR_PARTS", "").split(os.pathsep)):
        spec = importlib.util.spec_from_file_location(f"{__name__}.{Path(path).stem}", path)
        part = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(part)


def _open():
    global _file
    _listen_for_signal()
    _file = os.open(notes / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    ranks = {name.lower(): os.environ.get(name, "") for name in RANKS}
    fact(
        "process",
        parent=os.getppid(),
        argv=sys.orig_argv[1:],
        attempt=attempt(),
        act=ACT,
        node=os.environ.get("DOCTOR_NODE"),
        torchrun="TORCHELASTIC_RUN_ID" in os.environ,
        port=os.environ.get("MASTER_PORT"),
        **{name: int(value) for name, value in ranks.items() if value.isdecimal()},
    )


def _listen_for_signal():
    """SIGUSR1 writes the stacks of all threads into a file of this process."""
    with contextlib.suppress(OSError):
        stacks = open(notes / f"{os.getpid()}.stack", "w")  # noqa: SIM115 - faulthandler keeps it
        faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)


def fact(kind, **fields):
    """Write one fact."""
    _write(kind, _text(kind, **fields))


def _write(kind, text):
    if _file is None and kind in ("joining", "forward"):
        _open()  # this forked process is a rank
        for held in _held:
            os.write(_file, _line(held))
    if _file is not None:
        os.write(_file, _line(text))
    elif len(_held) < 100:
        _held.append(text)


def _text(kind, **fields):
    return json.dumps({"kind": kind, **fields})[1:-1]


_text_of_call = functools.lru_cache(1000)(_text)  # most calls of a line are alike, and json is slow


def _line(text):
    return f'{{"t": {time.monotonic()}, "pid": {os.getpid()}, {text}}}\n'.encode()


def call(kind, **fields):
    """Record a call that may wait for other ranks: the first as lines, then only the newest one.

    So even millions of calls take little room, and the last one of a hanging process is known.
    The fields are hashable.
    """
    global _newest
    number = count("call")
    text = f'"call": {number}, {_text_of_call(kind, **fields)}'
    if EVERY or number <= MOST_CALLS:
        _write(kind, text)
    elif _file is not None:
        if _newest is None:
            name = notes / f"{os.getpid()}.newest"
            _newest = os.open(name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(_newest, _line(text).ljust(500)[:500] + b"\n", 0)


def count(name, number=1):
    """Add to a counter of this process, and return it."""
    counts[name] = counts.get(name, 0) + number
    return counts[name]


def noting(kind, **fields):
    """A function that writes one fact, whatever its arguments."""
    text = _text(kind, **fields)
    return lambda *_, **__: _write(kind, text)


def due(number):
    """Whether to look at step `number` closely: 1 to 8, then powers of two and each 500th.

    Not if the probe has already taken its share of this process's time.
    """
    if EVERY or number <= 8:
        return True
    if number & (number - 1) and number % 500:
        return False
    affordable = spent < SHARE * (time.perf_counter() - began)
    count("looked at" if affordable else "throttled")
    return affordable


def guarded(note):
    """`note`, but an exception in it becomes a fact, and the result is None."""

    @functools.wraps(note)
    def wrapped(*args, **kwargs):
        global spent
        begin = time.perf_counter()
        try:
            return note(*args, **kwargs)
        except Exception as error:
            if count(f"unobserved {note.__name__}") <= 3:
                fact("unobserved", part=note.__name__, error=repr(error)[:300])
        finally:
            spent += time.perf_counter() - begin

    return wrapped


def attempt():
    """How many times the script has started before: earlier acts, and restarts."""
    return ACT + int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def around(function, before=None, after=None, failed=None, then=None, hides=True):
    """`function`, with calls of `before` and `after` around it, with the same arguments.

    `then` gets the result first. After an exception, `failed` is called in place of `after`, and
    gets it as `error`. Inside of a function that `hides` its calls, another one is not watched.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if compiling() or (hides and getattr(running, "watched", False)):
            return function(*args, **kwargs)
        if before:
            before(*args, **kwargs)
        outer = getattr(running, "watched", False)
        running.watched = hides or outer
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            if failed:
                failed(*args, error=error, **kwargs)
            raise
        finally:
            running.watched = outer
        if after:
            after(*args, **kwargs)
        if then:
            then(result, *args, **kwargs)
        return result

    return wrapped


def watch(owner, name, *notes, **options):
    """Put `around` in the place of a function."""
    setattr(owner, name, around(getattr(owner, name), *notes, **options))


def place(path):
    """A path relative to the run's folder, as in the facts. A link is a name, too."""
    folder, name = os.path.split(os.path.abspath(path))
    return _relative(os.path.join(os.path.realpath(folder), name))


def _relative(path):
    return os.path.relpath(path, homes[0]) if path.startswith(tuple(homes)) else path


def where(frame=None):
    """The innermost running line of the user's own files; None if there is none.

    With `frame`, of this and those outside of it.
    """
    return next((line_of(*place) for place in _theirs(frame)), None)


def caller():
    """The innermost one in another file than `where()`: a helper's is seldom the one to change."""
    places = [*_theirs()]
    return next((line_of(*place) for place in places if place[0] != places[0][0]), None)


def _theirs(frame=None):
    """File and number of each running line of the user's own, the innermost first."""
    for one, number in walk_stack(frame or sys._getframe(1)):
        if is_theirs(one.f_code.co_filename):
            yield one.f_code.co_filename, number


def line_of(file, number):
    return f"{_named(file)}:{number}"


@functools.cache
def _named(file):
    return _relative(os.path.realpath(file))


@functools.cache
def their_files():
    """The user's own modules that are loaded, as paths in the facts."""
    known = [getattr(module, "__dict__", {}) for module in [*sys.modules.values()]]
    files = [one.get("__file__") for one in known]  # to ask a lazy module would import it
    return [place(file) for file in files if file and is_theirs(file)]


@functools.cache  # a call asks it for each running function, and realpath asks the file system
def is_theirs(file):
    path = os.path.realpath(file)
    return (
        file[:1] != "<"
        and path.startswith(tuple(homes))
        and os.path.isfile(path)  # a compiled library has relative names of its sources
        and not path.startswith(_libraries)
        and f"{os.sep}site-packages{os.sep}" not in path
        and os.path.basename(file) not in os.environ.get("DOCTOR_NOT_THEIRS", "").split(os.pathsep)
    )


def is_recording():
    """Whether this process writes facts: not a DataLoader's worker, for one."""
    return _file is not None


def _forked():
    global _file, _newest
    _file = _newest = None  # a DataLoader worker, unless it trains
    _held.clear()
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # not a handler of the script's
        _listen_for_signal()  # else it would write into its parent's file


def _watch_torch(torch):
    global compiling
    compiling = torch.compiler.is_compiling
    before = ["on_cpu"] if "DOCTOR_CPU" in os.environ else []
    after = ["large_batches"] if "DOCTOR_PARITY" in os.environ else []
    for part in (*before, *PARTS, *after):
        try:
            importlib.import_module(f"{__name__}.{part}").watch()
        except Exception as error:  # another torch version: the run has fewer facts
            fact("unobserved", part=part, error=repr(error)[:300])

"""Watch what a process does beside torch: its output, files, ports and its end."""

import atexit
import contextlib
import os
import re
import sys
import time

import _ddp_doctor as recorder
from _ddp_doctor import around, exceptions, fact, guarded, homes, place

MOST_LINES = 2000  # of output to record
MOST_COPIES = 1000  # of files

_synced = {}  # by inode: the file's state when os.fsync sent it to the disk
overwritten = set()  # files that were there when they were opened to be written anew
_elsewhere = set()
_handled = None  # an exception with which a script exits by itself, and what was counted then
_linked = [*filter(None, os.environ.get("DOCTOR_LINKED", "").split(os.pathsep))]
_WRITE = os.O_WRONLY | os.O_RDWR
_TEMPORARY = os.path.join(os.environ.get("TMPDIR", "/tmp"), "")
_CACHES = (
    os.path.realpath(sys.prefix) + os.sep, os.path.expanduser("~/.cache/"), "/proc/",
    f"{_TEMPORARY}torchinductor_", f"{_TEMPORARY}pytorch-errorfile-",
)  # fmt: skip


def watch():
    _listen(sys.stdout, "said")
    _listen(sys.stderr, "logged")
    os._exit = around(os._exit, _ended)
    sys.exit = around(sys.exit, _note_exit)
    atexit.register(_ended, None)
    os.fsync = around(os.fsync, _note_sync)
    sys.addaudithook(_audit)


def _listen(stream, kind):
    """Record every line that is written to the stream."""
    if stream is None:
        return
    write, waiting, heard = stream.write, "", 0

    def listen(text):
        nonlocal waiting, heard
        *lines, waiting = re.split("[\r\n]", waiting + text)
        if "\r" in text:  # a bar, which shows it at once
            lines, waiting = [*lines, waiting], ""
        for line in lines:
            if heard < MOST_LINES:
                ends = line if len(line) <= 300 else f"{line[:150]} … {line[-150:]}"
                fact(kind, text=ends, backwards=recorder.counts.get("backward", 0))
            heard += 1
        return write(text)

    stream.write = listen


@guarded
def _note_exit(status=None, /):
    """Hydra, for one, catches an exception, prints it, and exits."""
    global _handled
    error = sys.exc_info()[1]
    if status and isinstance(error, Exception):
        _handled = error, {**recorder.counts}


def _ended(status):
    global _handled
    if not recorder.is_recording():
        return
    if _handled and _handled[1] == recorder.counts:  # else the exit was caught in turn
        exceptions.note(_handled[0])
    _handled = None  # its frames hold the model
    for function in recorder.at_end:
        function()
    cause = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    fact(
        "exit", status=status, cause=os.path.isfile(cause), counts=recorder.counts,
        spent=recorder.spent, seconds=time.perf_counter() - recorder.began,
    )  # fmt: skip


@guarded
def _note_sync(file):
    stat = os.fstat(file if isinstance(file, int) else file.fileno())
    _synced[stat.st_ino] = stat.st_size, stat.st_mtime_ns


def _audit(event, args):
    if not recorder.is_recording():
        return
    if event == "os.rename" and isinstance(args[0], str | os.PathLike):
        with contextlib.suppress(OSError):
            stat = os.stat(args[0])
            synced = _synced.get(stat.st_ino) == (stat.st_size, stat.st_mtime_ns)
            source = place(os.path.realpath(args[0]))  # a link brings the file behind it
            fact("renamed", source=source, path=place(args[1]), synced=synced)
    elif event == "shutil.copyfile" and all(isinstance(one, str | os.PathLike) for one in args):
        if recorder.count("copied") <= MOST_COPIES:
            fact("copied", source=place(os.path.realpath(args[0])), path=place(args[1]))
    elif event == "os.remove" and isinstance(args[0], str | os.PathLike):
        fact("removed", path=place(args[0]))
    elif event == "open" and isinstance(args[0], str | os.PathLike) and args[2] & _WRITE:
        path = os.path.realpath(args[0])
        if path.startswith((f"{recorder.notes}{os.sep}", "/dev/")):
            return
        protect(path)
        over = args[2] & os.O_TRUNC and os.path.exists(path)
        (overwritten.add if over else overwritten.discard)(path)
        if path.startswith(tuple(homes)):
            fact("opened", path=place(args[0]), existed=bool(over), where=recorder.where())
        elif not path.startswith(_CACHES) and path not in _elsewhere and len(_elsewhere) < 100:
            _elsewhere.add(path)
            fact("elsewhere", path=path)
    elif event == "socket.bind" and isinstance(args[1], tuple):
        fact("bound", port=args[1][1])
    elif event == "sys.excepthook":
        exceptions.note(args[2])


def protect(path):
    """Raise an error if this would write to what the doctor has linked into a copy."""
    if any(path == one or path.startswith(one + os.sep) for one in _linked):
        raise PermissionError(f"{path} is large, so ddp-doctor has linked it, only to be read")

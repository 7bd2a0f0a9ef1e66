"""Describe exceptions: the last one that ends a process, and the first one behind it."""

import re
import textwrap
from traceback import walk_tb

import _ddp_doctor as recorder


def note(error):
    """Record an exception that ends this process."""
    first, chain = error, [error]
    while (first := _before(first)) and first not in chain:
        chain.append(first)
    where = _line_of(chain[-1]) if len(chain) > 1 else None
    cause = where and f"{type(chain[-1]).__name__}: {message_of(chain[-1])} ({where})"
    recorder.fact(
        "raised", type=type(error).__name__, message=message_of(error), where=_line_of(error),
        cause=cause,
    )  # fmt: skip


def _before(error):
    """The exception that was handled when this one was raised."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _line_of(error):
    """The innermost line of the user's own files that it passed, here or in a loader's worker."""
    passed = [(frame.f_code.co_filename, number) for frame, number in walk_tb(error.__traceback__)]
    passed += re.findall(r'File "(.+)", line (\d+)', str(error))
    theirs = [recorder.line_of(file, int(n)) for file, n in passed if recorder.is_theirs(file)]
    line = theirs[-1] if theirs else None
    if isinstance(error, SyntaxError):
        line = recorder.line_of(error.filename or "", error.lineno)
    return line


def message_of(error):
    """Short, without colours; mp.spawn's error is a worker's whole traceback, torch.load's begins
    with advice."""
    parts = str(error).split("\n")[-2:] if "Traceback" in str(error) else str(error).split("\n")
    message = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(parts))
    message = message.partition("WeightsUnpickler error: ")[2] or message
    message = message.removeprefix(f"{type(error).__name__}: ")
    return textwrap.shorten(message, 300, placeholder=" …")

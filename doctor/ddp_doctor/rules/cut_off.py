"""What a run did when its limit, or the user, ended it."""

import re

from ..rule import rule
from .endings import hung, trained

IDLE = 30  # seconds without work or writes, in any process: no step is as quiet
LOADING = "_try_get_data"  # a function of torch's loader, which waits for a worker
SERVING = "_worker_loop"  # the function of a loader's worker; below are its parent's lines
WORKER = (
    "A DataLoader's worker waits. A fork copies a lock that another thread holds, and nobody "
    "releases the copy: start threads after the loader's workers, make what has locks in the "
    'worker, or give the loader `multiprocessing_context="spawn"`.'
)


@rule("error")
def stuck(run):
    """The run makes no progress until it is ended.

    Every process was where the report says. If that is a wait, look for what should end it; if it
    is work that only needs more time, give a higher `--limit`.
    """
    late = run.first("late")
    if not late or [*hung(run)]:
        return
    some, idle = any(map(trained, run.processes)), late.get("idle", 0)
    if some and idle < IDLE:
        return
    seconds = late["t"] - run.first("act")["t"]
    why = f"no process worked for {idle:.0f} s" if some else f"no step in {seconds:.0f} s"
    told, place, loads = _places(run)
    yield "; ".join([why, *told]), place, WORKER if loads else None


@rule("note")
def cut_off(run):
    """The run was ended before its end.

    What comes later was not seen: the end of an epoch, a last save. Give a higher `--limit`.
    """
    late = run.first("late")
    if late and not [*stuck(run)] and not [*hung(run)]:
        told, place, _ = _places(run)
        yield "; ".join([late["limit"], *told]), place


def _places(run):
    """Where each rank was; the first of these lines; whether a loader's worker has it."""
    stacks = {fact["of"]: fact for fact in run.all("stack")}
    told, places = [], []
    for worker in run.attempts[-1].workers:
        stack = stacks.get(worker.process["pid"])
        if not stack:
            continue
        at = _line(_main_thread(stack["text"]))
        serving = [
            _line(_main_thread(other["text"]).partition(SERVING)[0])
            for other in stacks.values()
            if other.get("parent") == stack["of"] and SERVING in other["text"]
        ]
        busy = next(filter(None, serving), None)
        if busy and LOADING in stack["text"]:
            told.append(f"{worker.name} waits for a loader's worker ({at}), which is at {busy}")
            places.insert(0, (busy, True))
        elif at:
            told.append(f"{worker.name} is at {at}")
            places.append((at, False))
    return told, *(places or [(None, False)])[0]


def _main_thread(text):
    """Python writes it last."""
    return text.rpartition("hread 0x")[2]


def _line(stack):
    """The innermost line of the user's own files, whose names are relative."""
    found = re.findall(r'File "([^/<"][^"]*)", line (\d+)', stack)
    return next((f"{file}:{n}" for file, n in found if "site-packages" not in file), None)

"""What a run did when its limit, or the user, ended it."""

import re

from ..rule import rule
from .endings import hung, trained

IDLE = 30  # seconds without work or writes, in any process: no step is as quiet
SERVING = "_worker_loop"  # of torch's loader: what called it is the parent's
WORKER = (
    "If it waits for a lock: a fork copies one that another thread holds, and nothing releases the "
    "copy, so start threads after the loader's workers, or create locks inside of them. If it "
    "works, it only needs more time: give a higher `--limit`."
)


@rule("error")
def stuck(run):
    """The run makes no progress until it is ended.

    If a process waits at that line, look for what should end the wait. If it is work that only
    needs more time, give a higher `--limit`.
    """
    late = run.first("late")
    if not late or any(hung(run)):
        return
    some, idle = any(map(trained, run.processes)), late.get("idle", 0)
    if not some or idle > IDLE:
        seconds = late["t"] - run.first("act")["t"]
        why = f"no process worked for {idle:.0f} s" if some else f"no step in {seconds:.0f} s"
        told, place, advice = _places(run)
        yield "; ".join([why, *told]), place, advice


@rule("note")
def cut_off(run):
    """The run was ended before its end.

    What comes later was not seen: the end of an epoch, a last save. Give a higher `--limit`.
    """
    late = run.first("late")
    if late and not any(stuck(run)) and not any(hung(run)):
        told, place, _ = _places(run)
        yield "; ".join([late["limit"], *told]), place


def _places(run):
    """Where each rank was; the line of the first, or of a loader's worker that it waits for."""
    told, places, stacks = [], [(None, None)], run.all("stack")
    for worker in run.attempts[-1].workers:
        pid = worker.process["pid"]
        at = next((_line(fact) for fact in stacks if fact["of"] == pid), None)
        loads = any("_try_get_data" in fact["text"] for fact in stacks if fact["of"] == pid)
        served = (_line(f) for f in stacks if f.get("parent") == pid and SERVING in f["text"])
        if loads and (busy := next(filter(None, served), None)):
            told.append(f"{worker.name} waits for a loader's worker ({at}), which is at {busy}")
            places.insert(0, (busy, WORKER))
        elif at:
            told.append(f"{worker.name} is at {at}")
            places.insert(-1, (at, None))
    return told, *places[0]


def _line(stack):
    """The innermost line of the user's own files, whose names are relative, in the main thread,
    which Python writes last."""
    text = stack["text"].rpartition("hread 0x")[2].partition(SERVING)[0]
    found = re.findall(r'File "([^/<"][^"]*)", line (\d+)', text)
    others = re.compile("site-packages|ddp_doctor/probe/")
    return next((f"{file}:{n}" for file, n in found if not others.search(file)), None)

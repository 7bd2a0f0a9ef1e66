"""Words for evidence: which rank, where, when."""

import math
import re
import signal

from ..by_epoch import Run, Worker


def ending(run: Run) -> str:
    """How the run failed: an exception, a wait, a status; "" if it did not."""
    if run.crash:
        where = f", {run.crash['where']}" if run.crash["where"] else ""
        kind, message = run.crash["type"], run.crash["message"]
        text = message if kind == "UserError" else f"{kind}: {message}" if message else kind
        text = text.rstrip(".")
        if kind == "ChildFailedError" and (found := re.search(r"Signal \d+ \(SIG\w+\)", message)):
            return f"a process was ended by {found[0]}"
        if kind == "BdbQuit":
            text = "breakpoint() needs a terminal, which a check does not have: print instead"
        return f"{run.who(run.crash)} ended with: {text}{where}"
    if run.stuck:
        return waiting(run)
    if run.first("late"):
        return f"the check ended the run after {run.first('late')['limit']}; {waiting(run)}"
    bad = [fact["status"] for fact in run.all("ended") if fact["status"]]
    if bad and bad[0] < 0:
        return f"the command was ended by Signal {-bad[0]} ({signal.Signals(-bad[0]).name})"
    return f"the command ended with status {bad[0]}" if bad else ""


def and_ending(run: Run) -> str:
    return f"; {told}" if (told := ending(run)) else ""


def waiting(run: Run) -> str:
    """Which rank waits where."""
    attempt = run.attempts[-1]
    return "; ".join(dict.fromkeys(wait(run, worker) for worker in attempt.workers))


def wait(run: Run, worker: Worker) -> str:
    """`rank 1 waits in all_reduce (multigpu.py:55), in epoch 1`."""
    epoch = worker.epoch(math.inf)
    when = f", in epoch {epoch}" if epoch else ""
    ended = run.first("hung", "late")
    gone = ended is not None and worker.process["pid"] not in ended.get("alive", [])
    if gone or worker.first("exit", "raised"):
        return f"{worker.name} has ended{when}"
    if not worker.waits:
        place = _top(run, worker)
        return f"{worker.name} is {f'at {place}' if place else 'at work'}{when}"
    what = {"joining": "init_process_group", "backward": "backward"}
    name = worker.waits.get("what") or what[worker.waits["kind"]]
    where = f" ({worker.waits['where']})" if worker.waits["where"] else ""
    return f"{worker.name} waits in {name}{where}{when}"


def _top(run, worker):
    """The innermost line of the learner's script in the worker's stack."""
    stacks = [stack["text"] for stack in run.all("stack") if stack["of"] == worker.process["pid"]]
    found = re.search(r'File "(?!utils\.|guard\.)([\w.-]+)", line (\d+)', "".join(stacks))
    return f"{found[1]}:{found[2]}" if found else None

"""For the instructor: where each learner is, and which exercises hold up the room."""

import statistics
import time
from pathlib import Path

from tools.errors import UserError

from .exercises import exercises
from .folder import LOG, Folder
from .show import say

STUCK = 3  # checks in a row that fail at the same point


def report(paths: list[Path]):
    """Print a line per learner, then a line per exercise that a learner has begun."""
    rooms = {path: Folder(path).events() for path in paths}
    for path, events in rooms.items():
        if not events:
            say(f"{path}: nothing done yet, or no workshop folder (it has no {LOG})", "yellow")
    rooms = {path: events for path, events in rooms.items() if events}
    if not rooms:
        raise UserError("no learner's folder has anything to report")
    width = max(len(str(path)) for path in rooms)
    say(
        "min: minutes from the first start to the last command; hints and solutions: before solving"
    )
    say(f"{'learner':{width}}  ready  solved  min  checks  hints  at")
    for path, events in rooms.items():
        say(f"{path!s:{width}}  {_line(events)}", "yellow" if _stuck(events) else "")
    say()
    names = max(map(len, exercises()))
    heads = "begun  solved  checks until solved (median)  hints  solutions shown"
    say(f"{'exercise':{names}}  {heads}")
    for name in exercises():
        if line := _exercise(name, list(rooms.values())):
            say(f"{name:{names}}  {line}")


def _line(events):
    looks = [event.get("wrong", []) for event in events if event["event"] == "ready"]
    ready = "–" if not looks else "no" if looks[-1] else "yes"
    # `ready` counts in no other column, because it is often run the day before.
    events = [event for event in events if event["event"] != "ready"]
    solved = {event["exercise"] for event in events if event["event"] == "solved"}
    begun, last = (events[0]["t"], events[-1]["t"]) if events else (time.time(), time.time())
    checks, hints = (sum(e["event"] == kind for e in events) for kind in ("check", "hint"))
    current = next((e["exercise"] for e in reversed(events) if e["event"] == "start"), "–")
    quiet = (time.time() - last) / 60
    state = f", stuck at {_stuck(events)}" if _stuck(events) else ""
    state += f", nothing for {quiet:.0f} min" if quiet > 10 else ""
    state += f", not ready: {', '.join(map(str, looks[-1]))}" if ready == "no" else ""
    done = f"{ready:5}  {len(solved):3}/{len(exercises())}  {(last - begun) / 60:3.0f}"
    return f"{done}  {checks:6}  {hints:5}  {current}{state}"


def _stuck(events):
    """The name of the check that failed in each of the last `STUCK` runs; None if they differ."""
    last = [event for event in events if event["event"] == "check"][-STUCK:]
    found = {(event["exercise"], event.get("failed")) for event in last}
    return last[0].get("failed") if len(last) == STUCK and len(found) == 1 else None


def _exercise(name, rooms):
    learners = [[e["event"] for e in events if e["exercise"] == name] for events in rooms]
    learners = list(filter(None, learners))
    if not learners:
        return None
    before = [kinds[: (*kinds, "solved").index("solved")] for kinds in learners]
    solved = [kinds for kinds in learners if "solved" in kinds]
    tries = [kinds[: kinds.index("solved")].count("check") for kinds in solved]
    hints, shown = (sum(kinds.count(one) for kinds in before) for one in ("hint", "solution"))
    median = f"{statistics.median(tries):g}" if tries else "–"
    return f"{len(learners):5}  {len(tries):6}  {median:>28}  {hints:5}  {shown:15}"

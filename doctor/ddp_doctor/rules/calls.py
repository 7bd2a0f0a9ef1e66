"""The collective calls of each rank, and where they part."""

from itertools import groupby, zip_longest

from ..recorded_run import Run, Worker
from .wording import loop_around, times


def differences(workers: list[Worker]):
    """Where each rank's calls first differ from rank 0's: the number, and a rank and call twice.

    A call is None after a rank's last one.
    """
    first = calls(workers[0]) if workers else []
    for other in workers[1:]:
        for number, (mine, theirs) in enumerate(zip_longest(first, calls(other)), 1):
            if not (mine and theirs) or _kind(mine) != _kind(theirs):
                yield number, (workers[0], mine), (other, theirs)
                break


def calls(worker: Worker) -> list[dict]:
    """Its collectives of all ranks. A backward pass of DDP or FSDP is one, too."""
    found, joins = [], False
    for fact in worker.all("collective", "sharded", "backward"):
        joins |= fact["kind"] == "sharded" or fact.get("what") == "DDP"
        if joins if fact["kind"] == "backward" else fact.get("part") is False:
            found.append(fact)
    return found


def in_a_row(run: Run, number: int, *workers: Worker) -> tuple[str, str | None]:
    """Where two ranks part at call `number`: how often each makes the one before, and its loop.

    Only if one of them goes round that loop once more, and the other one makes a known call.
    """
    places = [[call["where"] for call in calls(worker)] for worker in workers]
    known = {place for own in places for place in own[: number - 1]}
    begin, rows = 1, [[(place, len([*row])) for place, row in groupby(own)] for own in places]
    for (place, mine), (there, theirs) in zip(*rows, strict=False):
        begin += min(mine, theirs)
        if begin == number and place == there and {own[number - 1] for own in places} <= known:
            loop = loop_around(run, place)
            told = f"; they went round this loop {times(mine)} and {times(theirs)}"
            return (told, loop) if loop else ("", None)
    return "", None


def _kind(call):
    what = call.get("what", "backward")
    return what, 0 if what == "DDP" else call.get("bytes", 0)  # DDP itself compares models


def named(call):
    what, size = call.get("what", "backward"), call.get("bytes", 0)
    return f"{what}{f' of {size:,} bytes' if size else ''} ({call['where']})"

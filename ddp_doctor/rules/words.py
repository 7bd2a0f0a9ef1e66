"""How findings name ranks and places."""

from ..facts import Worker


def ranks(workers: list[Worker]) -> str:
    """`rank 0`, `ranks 0 and 1`, `ranks 0, 1 and 3`."""
    *others, last = sorted("?" if worker.rank is None else str(worker.rank) for worker in workers)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def where(workers: list[Worker], *kinds: str) -> str | None:
    """The place of the first of these facts that has one."""
    found = (fact["where"] for worker in workers for fact in worker.all(*kinds))
    return next(filter(None, found), None)

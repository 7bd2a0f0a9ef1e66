"""How findings name ranks and places."""

from ..facts import Worker


def ranks(workers: list[Worker]) -> str:
    """`rank 0`, `ranks 0 and 1`, `ranks 0, 1 and 3`."""
    names = [str(worker.rank) for worker in workers]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def where(workers: list[Worker], *kinds: str) -> str | None:
    """The place of the first of these facts that has one."""
    found = (fact["where"] for worker in workers for fact in worker.all(*kinds))
    return next(filter(None, found), None)

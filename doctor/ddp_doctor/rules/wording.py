"""How findings name ranks and places."""

import ast
import re
from collections.abc import Iterator

from ..recorded_run import Run, Worker


def ranks(workers: list[Worker]) -> str:
    """`rank 0`, `ranks 0 and 1`, `ranks 0, 1 and 3`."""
    *others, last = sorted("?" if worker.rank is None else str(worker.rank) for worker in workers)
    return f"ranks {', '.join(others)} and {last}" if others else f"rank {last}"


def times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def exception(fact: dict) -> str:
    told = ": ".join(filter(None, [fact["type"], fact["message"]]))
    return f"{told}, while it handled {fact['cause']}" if fact["cause"] else told


def where(workers: list[Worker], *kinds: str) -> str | None:
    """The place of the first of these facts that has one."""
    found = (fact["where"] for worker in workers for fact in worker.all(*kinds))
    return next(filter(None, found), None)


def trees(run: Run) -> Iterator[tuple[str, ast.Module]]:
    """The user's own files that some fact names or that were loaded, parsed."""
    for path, text in run.sources.items():
        try:
            yield path, ast.parse(text)
        except SyntaxError:  # the run has said so
            continue


def constants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each number and string of a file with its line, without comments and docstrings."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in alone:
            yield node.lineno, str(node.value)


def lines_with(run: Run, pattern: str, file: str | None = None) -> list[str]:
    """The places in the user's own files, or in one, where a line has this pattern."""
    return [
        f"{path}:{number}"
        for path, text in run.sources.items()
        for number, line in enumerate(text.splitlines(), 1)
        if file in (None, path) and re.search(pattern, line)
    ]

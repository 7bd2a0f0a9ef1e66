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


def totals_by_length(run: Run, place: str) -> list[str]:
    """Where a function divides a total, to which it adds, by the length of a dataset: below a
    place. A batch that a loop calls `data` is none."""
    function, file, line = _function(run, place)
    nodes = [*ast.walk(function)]
    loops = [node.target for node in nodes if isinstance(node, ast.For | ast.comprehension)]
    drawn = {one.id for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Name)}
    totals = {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AugAssign)}
    found = []
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and node.lineno >= line:
            total, by = (ast.unparse(side) for side in (node.left, node.right))
            names = re.fullmatch(r"len\(((?:\w+\.)*\w*(?:data|set))\)", by)
            if names and names[1] not in drawn and total.removesuffix(".item()") in totals:
                found.append(f"{file}:{node.lineno}")
    return found


def assigned(run: Run, place: str | None) -> str | None:
    """Where a function last assigned what its line `place` reads: of `loss.backward()`, the loss.

    `place` itself if that is not known.
    """
    function, file, line = _function(run, place)
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    read = {node.id for node in names if node.lineno == line and isinstance(node.ctx, ast.Load)}
    made = [node for node in names if node.id in read and isinstance(node.ctx, ast.Store)]
    before = [node.lineno for node in made if node.lineno < line]
    return f"{file}:{max(before)}" if before else place


def branches(run: Run, place: str | None) -> tuple[str | None, str | None]:
    """The `if` around a line of a function; or else the only one that leaves a loop around it."""
    function, file, line = _function(run, place)
    around = [node for node in ast.walk(function) if _has(node, line) and line != node.lineno]
    ifs = [node for node in around if isinstance(node, ast.If)]
    if ifs := [node for node in ifs if "__name__" not in ast.unparse(node.test)]:
        return f"{file}:{ifs[-1].lineno}", None
    for loop in [node for node in around if isinstance(node, ast.For | ast.While)][:1]:
        inside = [node for node in ast.walk(loop) if isinstance(node, ast.If)]
        leaves = [node for node in inside if isinstance(node.body[-1], ast.Break | ast.Return)]
        return None, f"{file}:{leaves[0].lineno}" if len(leaves) == 1 else None
    return None, None


def left_at(run: Run, inside: str, outside: str) -> str | None:
    """Two lines of a function, one in a loop: the only `if` that leaves that loop."""
    function, file, line = _function(run, inside)
    other, other_file, after = _function(run, outside)
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    loops = [loop for loop in loops if _has(loop, line) and not _has(loop, after)]
    ifs = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.If)]
    leaves = {node.lineno for node in ifs if isinstance(node.body[-1], ast.Break | ast.Return)}
    same = ast.dump(function) == ast.dump(other) and file == other_file
    return f"{file}:{leaves.pop()}" if same and len(leaves) == 1 else None


def loop_around(run: Run, place: str) -> str | None:
    """The innermost `for` of a function around one of its lines."""
    function, file, line = _function(run, place)
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For) and _has(node, line)]
    return f"{file}:{loops[-1].lineno}" if loops and loops[-1].lineno < line else None


def is_planned(run: Run, place: str) -> bool:
    """Whether a line makes a scheduler from a number of steps: not Noam's, whose number may be the
    size of the model. torch's own but LambdaLR have no other number that is so large."""
    function, _, line = _function(run, place)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    texts = [ast.unparse(node) for node in calls if node.lineno == line]
    texts = [text for text in texts if "LambdaLR(" in text]
    return all(re.search(r"total|max_|steps|iters|plan|T_max|len\(", text) for text in texts)


def reduced_before_backward(run: Run) -> list[str]:
    """Where a function all-reduces a variable, divides it in place, and sends it backward."""
    found = []
    for path, tree in trees(run):
        for scope in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            texts = [(n.lineno, ast.unparse(n)) for n in ast.walk(scope) if isinstance(n, ast.stmt)]
            for line, text in sorted(texts):
                if name := re.match(r"(?:\w+\.)*all_reduce\((\w+)[,)]", text):
                    x = name[1]
                    after = [(n, one) for n, one in sorted(texts) if n > line]
                    divided = [n for n, one in after
                               if re.match(rf"{x}(\.div_\(| /= |\.mul_\(1)", one)]  # fmt: skip
                    back = [n for n, one in after if re.match(rf"(.*\({x}\)|{x})\.backward\(", one)]
                    made = [n for n, one in after if re.match(rf"{x} = ", one)]
                    if divided and back and divided[0] < back[0] and not made:
                        found.append(f"{path}:{line}")
    return found


def _function(run, place):
    """The innermost function around a place, or the module, its file and the line."""
    file, _, number = (place or ":0").rpartition(":")
    scopes = [
        node
        for path, tree in trees(run)
        for node in ast.walk(tree)
        if path == file and isinstance(node, ast.FunctionDef | ast.Module)
    ]
    within = [node for node in scopes if isinstance(node, ast.Module) or _has(node, int(number))]
    return within[-1] if within else ast.Module([], []), file, int(number)


def _has(node, line):
    return isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno

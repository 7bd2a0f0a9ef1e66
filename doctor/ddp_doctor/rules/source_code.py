"""What only the source shows."""

import ast

from ..rule import rule
from .wording import lines_with, trees, where

SET_DEVICE = ("set_device", "set_device_index")


def _is_global_rank(node):
    """`dist.get_rank()`, or `os.environ["RANK"]` in some form."""
    text = ast.unparse(node)
    if "%" in text or "local" in text.lower():
        return False
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    names = [getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls]
    words = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return "get_rank" in names or "RANK" in words


@rule("warning")
def device_from_rank(run):
    """The device is chosen by the global rank.

    On the second of two nodes with 8 GPUs, rank 8 asks for GPU 8, which does not exist. Use
    `LOCAL_RANK`, which counts the processes of one node.
    """
    for worker in run.processes:
        chosen, size = worker.first("chosen"), worker.process.get("local_world_size")
        if chosen and size and (chosen["index"] or 0) >= size:
            yield (
                f"{worker.name}, one of {size} on its node, chose device {chosen['index']}"
            ), chosen["where"]
    for path, tree in trees(run):
        outer = _by_rank(tree)
        for scope in (tree, *[n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]):
            given = {node.arg for node in _own(scope) if isinstance(node, ast.arg)}
            names = outer - given | _by_rank(scope)
            for call in filter(_sets_device, _own(scope)):
                if getattr(call.args[0], "id", None) in names or _is_global_rank(call.args[0]):
                    yield ast.unparse(call), f"{path}:{call.lineno}"


def _own(scope):
    """The nodes of a module or a function, without those of the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own(node)


def _by_rank(scope):
    """The names to which it assigns the global rank."""
    assigned = [n for n in _own(scope) if isinstance(n, ast.Assign) and _is_global_rank(n.value)]
    return {target.id for n in assigned for target in n.targets if isinstance(target, ast.Name)}


def _sets_device(node):
    if not isinstance(node, ast.Call) or len(node.args) != 1:
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in SET_DEVICE


@rule("note")
def errors_not_recorded(run):
    """torchrun cannot say why a process fails.

    Its summary then shows `error_file: <N/A>`. Decorate the main function with
    `torch.distributed.elastic.multiprocessing.errors.record`.
    """
    by_torchrun = any(worker.process["torchrun"] for worker in run.ranks)
    if by_torchrun and run.sources and not lines_with(run, r"^\s*@([\w.]+\.)?record"):
        yield "no function has the decorator @record", where(run.ranks, "joining")

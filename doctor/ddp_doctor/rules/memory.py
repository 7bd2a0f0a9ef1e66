"""Does memory grow with every step?"""

import ast

from ..rule import rule
from .wording import trees


@rule("warning")
def graph_kept(run):
    """The graphs of earlier steps stay in memory.

    Memory grows with every step that adds to it. A tensor that depends on the weights keeps
    the graph that made it. Keep `loss.detach()` or `loss.item()` in place of `loss`, and detach
    outputs before you collect them.
    """
    for fact in run.all("kept")[:1]:
        lines = [_line(run, *name) for name in fact["names"]]
        by = [f"`{name}` ({kind})" for _, name, kind in fact["names"]]
        told = f", in {' and '.join(dict.fromkeys(by))}" if by else ""
        yield (
            f"the graphs of the first {fact['graphs']} steps are all alive after step "
            f"{fact['step']}{told}"
        ), next(filter(None, lines), fact["where"])


def _line(run, function, name, kind):
    """The line that adds to a variable: `name += x`, `name.append(x)`, `name[key] = x`."""
    file, found = function.rpartition(":")[0], []
    for path, tree in trees(run):
        for node in ast.walk(tree) if path == file else ():
            to = None
            if isinstance(node, ast.AugAssign):
                to = node.target
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                to = node.func.value if node.func.attr in ("append", "extend", "add") else None
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                again = any(ast.unparse(part) == name for part in ast.walk(node.value)
                            if isinstance(part, ast.Name | ast.Attribute))  # fmt: skip
                to = node.targets[0] if again else None
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                to = node.targets[0]
            while isinstance(to, ast.Subscript):
                to = to.value
            if to is not None and ast.unparse(to).rpartition(".")[2] == name.rpartition(".")[2]:
                found.append(node.lineno)
    return f"{file}:{found[0]}" if found else None

"""Does memory grow with every step?"""

from ..rule import rule
from .wording import lines_with


@rule("warning")
def graph_kept(run):
    """The graphs of earlier steps stay in memory.

    Memory grows with every step. A tensor that depends on the weights keeps
    the graph that made it. Keep `loss.detach()` or `loss.item()` in place of `loss`, and detach
    outputs before you collect them.
    """
    for fact in run.all("graphs")[:1]:
        lines = [_line(run, *name) for name in fact["names"]]
        by = [f"`{name}` ({kind})" for _, name, kind in fact["names"]]
        told = f", in {' and '.join(dict.fromkeys(by))}" if by else ""
        yield (
            f"the graphs of the first {fact['graphs']} steps are all alive after step "
            f"{fact['step']}{told}"
        ), next(filter(None, lines), fact["where"])


def _line(run, function, name, kind):
    """The line that adds to a variable: `name += x`, `name.append(x)`, `name[key] = x + name`."""
    own = rf"\b{name.rpartition('.')[2]}\b(\[.*\])?"
    adds = rf"{own}(\s*\+=|\.(append|extend|add)\(|\s*= .*\b{own})"
    return next(iter(lines_with(run, adds, function.rpartition(":")[0])), None)

"""Watch whether the graphs of earlier steps stay in memory, and which variables keep them.

A node of a graph has a dict for notes. We put an object there, to which we keep a weak reference:
it lives as long as the node.
"""

import itertools
import sys
import weakref
from collections import deque
from traceback import walk_stack

import _ddp_doctor as recorder
import torch
from _ddp_doctor.fingerprints import tensors_in

EARLY = 16  # the steps whose graphs are marked; no more, so that it costs nothing later
LOOKS = 20, 32, 64, 128, 256  # steps at which we look whether these graphs are still there
UPPER = 200  # nodes of a graph to mark
NODES = 20_000  # of graphs, and ITEMS of a container, in which to look for them
ITEMS = 2000
KEY = "ddp-doctor"

_marks, _looks = [], []  # weak references, one for each step; the looks that were made


class Mark:
    """Lives in a node of a graph."""


@recorder.guarded
def note_backward(tensors):
    """The first backward pass of each early step; of some later ones, whether those are gone."""
    made = recorder.counts.get("step", 0)
    if made == len(_marks) < EARLY:
        if own := [t.grad_fn for t in tensors_in([tensors]) if t.grad_fn is not None]:
            _marks.append(_mark(own))
    elif made in LOOKS and made not in _looks and len(_marks) == EARLY:
        _looks.append(made)
        alive = {id(mark()) for mark in _marks if mark()}
        if len(alive) == EARLY:
            names = [*itertools.islice(_keepers(alive), 4)]
            recorder.fact("graphs", step=made, graphs=EARLY, names=names, where=recorder.where())
            _looks[:] = LOOKS  # once is enough


def _mark(nodes):
    """Mark the upper part of a graph, up to the outputs of a model. A part of an older graph keeps
    its mark, and what adds to a parameter's gradient lives as long as that."""
    mark = Mark()
    for node in itertools.islice(_below(nodes), UPPER):
        if not hasattr(node, "variable"):
            node.metadata.setdefault(KEY, mark)
    return weakref.ref(mark)


def _below(nodes):
    """These nodes of graphs and all that they lead to, the nearest first."""
    seen, coming = set(nodes), deque(nodes)
    while coming:
        node = coming.popleft()
        yield node
        new = [below for below, _ in node.next_functions if below and below not in seen]
        seen.update(new)
        coming.extend(new)


def _keepers(alive):
    """File and name of each variable of the running functions, or attribute of such a variable,
    from which a graph leads to most of those that are kept."""
    for frame, _ in walk_stack(sys._getframe(1)):
        if recorder.is_theirs(frame.f_code.co_filename):
            file = recorder.line_of(frame.f_code.co_filename, frame.f_code.co_firstlineno)
            for name, value in _variables({**frame.f_locals}):
                if _leads_to(value, alive):
                    yield [file, name, type(value).__name__]


def _variables(known):
    for name, value in known.items():
        yield name, value
        file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
        if file and recorder.is_theirs(file):
            for attribute, one in [*getattr(value, "__dict__", {}).items()]:
                yield f"{name}.{attribute}", one


def _leads_to(value, alive):
    nodes = [t.grad_fn for t in itertools.islice(_tensors(value), ITEMS) if t.grad_fn is not None]
    found = {id(node.metadata.get(KEY)) for node in itertools.islice(_below(nodes), NODES)}
    return len(found & alive) > EARLY / 2


def _tensors(value, depth=2):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, list | tuple | dict):
        for one in [*(value.values() if isinstance(value, dict) else value)]:
            yield from _tensors(one, depth - 1)

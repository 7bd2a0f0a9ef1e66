"""Watch what a script does with the result of a collective: wait for it, reduce a total again."""

import dis
import functools
import inspect
import linecache
import sys
import weakref
from traceback import walk_stack

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
from _ddp_doctor.fingerprints import captured

SMALL = 64  # numbers of a total
CALLS = 8  # of a line to look at: a GPU has to send its numbers
GROWN = 3  # calls in a row that get a tensor with at least what the one before has left in it

MANAGED = getattr(dist.distributed_c10d, "_IllegalWork", ())  # of calls that one manager waits for

_known = {}  # by id of a tensor: a weak reference, its numbers after a call, and calls in a row


def note_before(tensor=None, op=dist.ReduceOp.SUM, group=None, async_op=False):
    """Before an all_reduce. What this rank has added since the last one lies on top of its sum."""
    _look(tensor, op, group, async_op, _compare)


def note_after(tensor=None, op=dist.ReduceOp.SUM, group=None, async_op=False):
    _look(tensor, op, group, async_op, _keep)


@recorder.guarded
def _look(tensor, op, group, async_op, then):
    if async_op or op != dist.ReduceOp.SUM or tensor.numel() > SMALL or captured(tensor):
        return
    if dist.get_world_size(group) > 1:
        where = recorder.where()
        if recorder.count(f"{then.__name__} {where}") <= CALLS:
            then(tensor, where)


def _compare(tensor, where):
    own, after, grown = _known.get(id(tensor), (lambda: None, None, 0))
    if own() is tensor and after.shape == tensor.shape:
        grows = bool(((tensor >= after) & (after >= 0)).all())
        grows = grows and bool(((tensor > after) & (after > 0)).any())
        grown = grown + 1 if grows else 0
        _known[id(tensor)] = own, after, grown
        if grown == GROWN:
            recorder.fact("resummed", where=where)


def _keep(tensor, where):
    own, _, grown = _known.get(id(tensor), (lambda: None, None, 0))
    grown = grown if own() is tensor else 0
    _known[id(tensor)] = weakref.ref(tensor), tensor.detach().clone(), grown


@recorder.guarded
def note_names(tensor=None, *_, **__):
    """What the calling function names a small tensor: strings, lists and keys in its variables."""
    where = recorder.where()
    if tensor.numel() > SMALL or recorder.count(f"names {where}") > CALLS:
        return
    frame = next((f for f, _ in walk_stack(None) if recorder.is_theirs(f.f_code.co_filename)), None)
    if frame is None:
        return
    ordered, known = "sorted" in frame.f_code.co_names, frame.f_locals
    own = {name: _texts(one, ordered) for name, one in [*known.items()]}
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and type(known) is dict:
        known.clear()  # before Python 3.13 a copy, which would keep a step's tensors alive
    if own := {name: texts for name, texts in own.items() if texts}:
        recorder.fact("labels", n=recorder.counts[f"names {where}"], where=where, own=own)


def _texts(value, ordered):
    if isinstance(value, dict) and not ordered:
        value = [*value] if any(isinstance(one, torch.Tensor) for one in value.values()) else ()
    texts = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    short = all(isinstance(one, str) and len(one) < 60 for one in texts) and len(texts) < 60
    return [*texts] if short else []


@recorder.guarded
def note_result(name, result, *_, **__):
    """Of a call that has returned at once: whether its caller drops the handle."""
    frame = sys._getframe()
    while frame.f_globals.get("__name__", "").startswith(recorder.__name__):
        frame = frame.f_back
    if not isinstance(result, dist.Work) or isinstance(result, MANAGED):
        return
    file = frame.f_code.co_filename
    line = linecache.getline(file, frame.f_lineno) if recorder.is_theirs(file) else ""
    calls = f"{name}(" in line and "map(" not in line  # else it drops the result of another call
    if calls and _drops(frame.f_code, frame.f_lasti) and recorder.count("dropped") == 1:
        recorder.fact("dropped", where=recorder.where())


@functools.cache
def _drops(code, offset):
    """Whether the instruction after this one throws its result away."""
    later = (one for one in dis.get_instructions(code) if one.offset > offset)
    return next(later).opname == "POP_TOP"

"""With --restart: the tensors beside the trained ones, as those of an average or a teacher.

Those of all modules that no other one contains, and dicts of tensors with the shapes of a model's
weights. A dict in a local variable, or in an object, is found by the garbage collector.
"""

import gc

import _ddp_doctor as recorder
import torch
from _ddp_doctor.fingerprints import fingerprint

_due = 3  # before how many more steps to look


def before_step():
    """At the beginning, and some times after each save: to look takes a tenth of a second."""
    global _due
    if _due:
        _due -= 1
        _note()


def at_save():
    global _due
    if recorder.EVERY and _due == 0:
        _due = 3
        _note()


@recorder.guarded
def _note():
    held = {}
    for name, tensors, _ in _found():
        held.setdefault(name, []).append(sorted(map(fingerprint, tensors)))
    recorder.fact("beside", step=recorder.counts.get("step", 0) + 1, held=held)


def averages():
    """By description, models, dicts and lists whose tensors all have the shape of a weight."""
    return {name: one for name, tensors, one in _found(alike=True)}


def _found(alike=False):
    objects = gc.get_objects()  # isinstance would ask a proxy, which may answer with an import
    modules = [one for one in objects if issubclass(type(one), torch.nn.Module)]
    optimizers = [one for one in objects if issubclass(type(one), torch.optim.Optimizer)]
    trained = [p for one in optimizers for group in one.param_groups for p in group["params"]]
    own = {id(one) for m in modules for one in (m._parameters, m._buffers)}
    own |= {id(state) for one in optimizers for state in one.state.values()}
    own.add(id(objects))
    kept = [one for one in objects if type(one) in (dict, list) and len(one) > 1]
    kept = [one for one in kept if id(one) not in own]
    shapes = {p.shape for p in trained}
    for found in [*_of_modules(modules, trained), *_of_dicts(kept, trained)]:
        if not alike or shapes.issuperset(tensor.shape for tensor in found[1]):
            yield found


def _of_modules(modules, trained):
    trained = {*map(id, trained)}
    inner = {id(child) for one in modules for child in one._modules.values()}
    for one in modules:
        if id(one) in inner:
            continue
        tensors = [*one.parameters()]
        for part in one.modules():
            passing = part._non_persistent_buffers_set
            tensors += [b for name, b in part._buffers.items() if name not in passing]
        # Not the buffers of a trained model: the first pass after a load has changed BatchNorm's.
        if tensors and all(_is_plain(t) and id(t) not in trained for t in tensors):
            yield f"{type(one).__name__} ({len(tensors)} tensors)", tensors, one


def _of_dicts(kept, trained):
    """Also of lists. Not a state_dict, which has the same memory as the weights."""
    plain = [*filter(_is_plain, trained)]
    known = [*plain, *(p.grad for p in plain if p.grad is not None)]
    pointers, shapes = {t.data_ptr() for t in known}, {p.shape for p in plain}
    for one in kept:
        named = type(one) is dict
        if not all(map(_is_plain, one.values() if named else one)):
            continue
        tensors = [*one.values()] if named else one
        copies = [t.shape in shapes and t.data_ptr() not in pointers for t in tensors]
        if not copies or not all(copies) or any(t.requires_grad for t in tensors):
            continue
        if _resemble(tensors, plain):
            kind = f"dict with {next(iter(one))!r}" if named else "list"
            yield f"a {kind} ({len(one)} tensors)", tensors, one


def _resemble(tensors, weights):
    """Whether the largest is like a weight, as an average is. A gradient is not."""
    one = max(tensors, key=torch.numel).detach().flatten().float()
    alike = [w.detach().flatten().float() for w in weights if w.numel() == one.numel()]
    similar = [torch.cosine_similarity(one, w.to(one.device), dim=0) for w in alike]
    return any(float(value) > 0.5 for value in similar)


def _is_plain(value):
    return type(value) in (torch.Tensor, torch.nn.Parameter) and not value.is_meta

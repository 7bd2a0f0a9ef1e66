"""Try whether a language model sees the tokens that it predicts."""

import contextlib
from copy import copy

import _ddp_doctor as recorder
import torch
from _ddp_doctor.fingerprints import tensors_in


def attempt(model, args, kwargs):
    """If the targets are the inputs shifted by one: does the last token change earlier outputs?

    Only a model that gets nothing else, but plain options, can be called again.
    """
    values = [*args, *kwargs.values()]
    whole = [t for t in tensors_in(values) if not t.is_floating_point() and t.ndim == 2]
    if len(whole) != len(tensors_in(values)) or not all(map(_is_plain, values)):
        return
    if not (len(whole) == 2 and whole[0].shape == whole[1].shape and whole[0].shape[1] > 3):
        return
    if not torch.equal(whole[0][:, 1:], whole[1][:, :-1]):
        return
    tokens, targets = whole[0][:1], whole[1][:1]
    changed = tokens.clone()
    changed[0, -1] = (changed[0, -1] + 1) % max(2, int(whole[0].max()) + 1)

    def outputs(tokens):
        new = {id(whole[0]): tokens, id(whole[1]): targets}
        named = {name: new.get(id(value), value) for name, value in kwargs.items()}
        return _by_place(model(*(new.get(id(value), value) for value in args), **named), tokens)

    with _evaluating(model):
        before, after = outputs(tokens), outputs(changed)
    if before is not None:
        moved = float((before[:, :-1] - after[:, :-1]).abs().max())
        recorder.fact("causality", moved=moved, scale=float(before.abs().max()),
                      where=recorder.where())  # fmt: skip


def _is_plain(value):
    return value is None or isinstance(value, torch.Tensor | str | int | float)


@contextlib.contextmanager
def _evaluating(model):
    """Without gradients, and with copies of what a pass may change: a cache, or a buffer that the
    backward pass of an earlier one needs."""
    kept = [(module.__dict__, {**module.__dict__}) for module in model.modules()]
    copies = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        with torch.no_grad(), torch.random.fork_rng():
            for own, was in kept:
                own |= {name: copy(v) for name, v in was.items() if type(v) in (dict, list, set)}
                buffers = own.get("_buffers", {})  # a ScriptModule has none here
                buffers |= {name: copies[b] for name, b in buffers.items() if b is not None}
            model.eval()
            yield
    finally:
        for own, was in kept:
            own.clear()
            own.update(was)


def _by_place(output, tokens):
    for tensor in tensors_in(output):
        if tensor.ndim == 2 and len(tensor) == tokens.numel():
            tensor = tensor[None]  # flattened, of one row
        if tensor.ndim == 3 and tensor.shape[:2] == tokens.shape:
            return tensor.float()
    return None

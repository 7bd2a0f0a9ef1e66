"""Watch whether an average of the weights moves between two micro-batches of one step."""

import _ddp_doctor as recorder
import torch
from _ddp_doctor import beside
from _ddp_doctor.fingerprints import fingerprint, tensors_in

_passes = 0  # before the first step
_averages, _prints = {}, None  # by description, when the second step's first micro-batch came


@recorder.guarded
def note_backward():
    """Called before each backward pass. To look at all objects takes a tenth of a second."""
    global _passes, _prints
    made = recorder.counts.get("step", 0)
    _passes += made == 0
    if made != 1 or _passes < 2:
        _averages.clear()
    elif _prints is None:
        _averages.update(beside.averages())
        _prints = _look()
    elif _averages:
        now = _look()
        if moved := [name for name, one in _prints.items() if now[name] != one]:
            recorder.fact("moved", names=moved, where=recorder.where())
        _averages.clear()


def note_zeroed():
    """Another step begins, also if a GradScaler has left the last one out."""
    _averages.clear()


def _look():
    return {name: [*map(fingerprint, _tensors(one))] for name, one in _averages.items()}


def _tensors(one):
    return [*one.parameters()] if isinstance(one, torch.nn.Module) else tensors_in(one)

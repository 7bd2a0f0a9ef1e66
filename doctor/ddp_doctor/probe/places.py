"""On which GPU a saved tensor was, and to which one `torch.load` brings it.

With --cpu, there is none: a model is where `to` or `cuda` has sent it.
"""

import os
import weakref

import _ddp_doctor as recorder
import torch
from _ddp_doctor.fingerprints import tensors_in

PLAIN = (torch.Tensor, torch.nn.Parameter)

_models = weakref.WeakKeyDictionary()  # with --cpu: the index of a model's GPU
_pointers = {}  # the same, by the address of its tensors then
located = set()  # with --cpu: the GPUs that the file names


def begin_load(*_, **__):
    located.clear()


def end_load(loaded):
    """The GPUs on which it put tensors; None if each rank sees only its own."""
    one = "," not in (os.environ.get("CUDA_VISIBLE_DEVICES") or ",")
    return None if one else sorted(located | _gpus(loaded))


def _gpus(value):
    return {tensor.device.index for tensor in tensors_in(value) if tensor.is_cuda}


def keep(storage, location):
    """As map_location, with --cpu."""
    kind, _, index = str(location).partition(":")
    if kind == "cuda":
        located.add(int(index or 0))
    return storage


def gpus_of(value):
    """Those of the tensors in what is saved."""
    here = [t for t in tensors_in(value) if type(t) in PLAIN]
    moved = {_pointers.get(t.data_ptr()) for t in here} if _pointers else set()
    return sorted(_gpus(here) | moved - {None})


@recorder.guarded
def move(model, device, current):
    """A model was sent to a device. Without an index, that is the current one."""
    device = torch.device("cuda", device) if type(device) is int else torch.device(device)
    before = _models.pop(model, None)
    if device.type == "cuda":
        _models[model] = current if device.index is None else device.index
    if device.type == "cuda" or before is not None:
        _pointers.clear()
        for one, index in _models.items():
            tensors = [*one.parameters(), *one.buffers()]
            _pointers.update({t.data_ptr(): index for t in tensors if type(t) in PLAIN})


def is_on_gpu(tensor):
    """Whether a copy to the CPU would be another tensor."""
    if not _pointers or recorder.compiling() or type(tensor) not in PLAIN:
        return False
    try:
        return tensor.data_ptr() in _pointers
    except RuntimeError:  # one inside a transformation of torch.func has none
        return False

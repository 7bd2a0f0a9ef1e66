"""Watch process groups, collectives and checkpoints."""

import contextlib
import functools
import importlib
import os
import sys
import threading
from multiprocessing.process import BaseProcess
from urllib.parse import urlsplit

import _workshop as recorder
import torch
import torch.distributed as dist
from _workshop import around
from _workshop.training import fingerprint, tensors_in
from torch.nn.parallel import DistributedDataParallel as DDP

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list",
)  # fmt: skip


def watch():
    torch.save = around(torch.save, after=_note_file)
    sys.meta_path.insert(0, recorder.After("torch.distributed.checkpoint", _watch_checkpoint))
    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the name is also a function
    spawn._wrap = _spawned(spawn._wrap)
    BaseProcess.run = _watched()(BaseProcess.run)
    if dist.is_available():
        DDP.__init__ = _collective("DDP", DDP.__init__)
        for name in COLLECTIVES:
            _replace(name, functools.partial(_collective, name))
        _replace("init_process_group", lambda join: around(join, _note_joining, _note_joined))
        _replace("destroy_process_group", lambda leave: around(leave, after=_note_left))


def _replace(name, wrap):
    if hasattr(dist.distributed_c10d, name):
        wrapped = wrap(getattr(dist.distributed_c10d, name))
        for module in (dist, dist.distributed_c10d, dist.device_mesh):
            if hasattr(module, name):
                setattr(module, name, wrapped)


def _collective(name, function):
    return around(
        function,
        functools.partial(_note_call, name),
        lambda *_, **__: recorder.fact("done", what=name),
    )


@recorder.guarded
def _note_call(name, *args, **kwargs):
    given = [*args, *kwargs.values()]
    unequal = "object" in name or name in ("gather", "scatter")  # not the same on every rank
    sent = [] if unequal else tensors_in(given)
    size = sum(tensor.numel() * tensor.element_size() for tensor in sent)
    groups = [one for one in given if isinstance(one, dist.ProcessGroup)]
    part = any(one is not dist.group.WORLD for one in groups)
    recorder.fact("collective", what=name, bytes=size, part=part, where=recorder.where())


def _note_joining(backend=None, init_method=None, *rest, store=None, **others):
    """`port` is where the ranks meet; None if it is not in a number that the script passes."""
    if not init_method or init_method == "env://":
        init_method = f"tcp://:{os.environ.get('MASTER_PORT')}"
    port = None
    with contextlib.suppress(ValueError):
        port = None if store else urlsplit(init_method).port
    recorder.fact("joining", port=port, where=recorder.where())


def _note_left(*_, **__):
    recorder.fact("left")


def _note_joined(*_, **__):
    rank, size, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
    recorder.fact("joined", rank=rank, world_size=size, backend=backend)


def _spawned(wrap):
    """mp.spawn catches exceptions and sends them to the parent as text, so watch inside it."""

    @functools.wraps(wrap)
    def wrapped(function, *rest):
        return wrap(_watched()(function), *rest)

    return wrapped


@contextlib.contextmanager
def _watched():
    """Record exceptions that a caller would catch and print."""
    try:
        yield
    except Exception as error:
        recorder.raised(error)
        raise


def _watch_checkpoint(checkpoint):
    """With torch.distributed.checkpoint.save, each rank writes its part of one checkpoint."""
    checkpoint.save = around(checkpoint.save, after=_note_parts)


def _note_parts(state_dict, *, checkpoint_id=None, **_):
    _note_file(state_dict, checkpoint_id, together=True)


@recorder.guarded
def _note_file(obj, f, *_, together=False, **__):
    thread = threading.current_thread() is not threading.main_thread()
    path, content = _file_name(f), _outline(obj)
    recorder.fact("saved", path=path, content=content, together=together, thread=thread)


def _file_name(file):
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return recorder.place(name) if isinstance(name, str | os.PathLike) else None


def _outline(value):
    """What a checkpoint contains: numbers as they are, tensors as fingerprints."""
    if isinstance(value, torch.Tensor):
        number = int(value) if value.numel() == 1 and not value.is_floating_point() else None
        return {"print": fingerprint(value), "number": number}
    if isinstance(value, dict):
        return {"keys": {str(key): _outline(one) for key, one in value.items()}}
    if isinstance(value, list | tuple):
        return [_outline(one) for one in value[:20]]
    return value if isinstance(value, int | float) else None

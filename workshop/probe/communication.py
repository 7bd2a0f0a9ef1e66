"""Watch process groups, collectives and checkpoints."""

import contextlib
import functools
import importlib
import os
import sys
from multiprocessing.process import BaseProcess
from urllib.parse import urlsplit

import _workshop_recorder as recorder
import torch
import torch.distributed as dist
from _workshop_training import fingerprint, tensors_in
from torch.nn.parallel import DistributedDataParallel as DDP

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list",
)  # fmt: skip


def watch():
    torch.save = _saving(torch.save)
    sys.meta_path.insert(0, recorder.After("torch.distributed.checkpoint", _watch_checkpoint))
    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the name is also a function
    spawn._wrap = _spawned(spawn._wrap)
    BaseProcess.run = _watched(BaseProcess.run)
    if dist.is_available():
        DDP.__init__ = _collective("DDP", DDP.__init__)
        for name in COLLECTIVES:
            _replace(name, functools.partial(_collective, name))
        _replace("init_process_group", _joining)
        _replace("destroy_process_group", _leaving)


def _replace(name, wrap):
    if hasattr(dist.distributed_c10d, name):
        wrapped = wrap(getattr(dist.distributed_c10d, name))
        setattr(dist.distributed_c10d, name, wrapped)
        setattr(dist, name, wrapped)


def _alone(function):
    """`function`; the calls inside it are no facts."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        recorder.inside += 1
        try:
            return function(*args, **kwargs)
        finally:
            recorder.inside -= 1

    return wrapped


def _collective(name, function):
    alone = _alone(function)

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if recorder.inside:
            return function(*args, **kwargs)
        _note_call(name, args, kwargs)
        result = alone(*args, **kwargs)
        recorder.fact("done", what=name)
        return result

    return wrapped


@recorder.guarded
def _note_call(name, args, kwargs):
    given = [*args, *kwargs.values()]
    unequal = "object" in name or name in ("gather", "scatter")  # not the same on every rank
    sent = [] if unequal else tensors_in(given)
    size = sum(tensor.numel() * tensor.element_size() for tensor in sent)
    groups = [one for one in given if isinstance(one, dist.ProcessGroup)]
    part = any(one is not dist.group.WORLD for one in groups)
    recorder.fact("collective", what=name, bytes=size, part=part, where=recorder.where())


def _joining(join):
    alone = _alone(join)

    @functools.wraps(join)
    def wrapped(*args, **kwargs):
        recorder.fact("joining", port=_port(*args, **kwargs), where=recorder.where())
        result = alone(*args, **kwargs)
        rank, size, backend = dist.get_rank(), dist.get_world_size(), dist.get_backend()
        recorder.fact("joined", rank=rank, world_size=size, backend=backend)
        return result

    return wrapped


def _port(backend=None, init_method="env://", *rest, store=None, **others):
    """The port at which the ranks meet; None if it is not in a number that the script passes."""
    if store is None and init_method in (None, "env://"):
        init_method = f"tcp://:{os.environ.get('MASTER_PORT')}"
    with contextlib.suppress(ValueError):
        return urlsplit("" if store else init_method).port


def _leaving(leave):
    @functools.wraps(leave)
    def wrapped(*args, **kwargs):
        result = leave(*args, **kwargs)
        recorder.fact("left")
        return result

    return wrapped


def _spawned(wrap):
    """mp.spawn catches exceptions and sends them to the parent as text, so watch inside it."""

    @functools.wraps(wrap)
    def wrapped(function, *rest):
        return wrap(_watched(function), *rest)

    return wrapped


def _watched(function):
    """Record exceptions that a caller would catch and print."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            recorder.raised(error)
            raise

    return wrapped


def _saving(save):
    @functools.wraps(save)
    def wrapped(obj, f, *args, **kwargs):
        result = save(obj, f, *args, **kwargs)
        _note_file("saved", f, obj)
        return result

    return wrapped


def _watch_checkpoint(checkpoint):
    """With torch.distributed.checkpoint.save, each rank writes its part of one checkpoint."""
    save, alone = checkpoint.save, _alone(checkpoint.save)

    @functools.wraps(save)
    def wrapped(state_dict, *args, checkpoint_id=None, **kwargs):
        result = alone(state_dict, *args, checkpoint_id=checkpoint_id, **kwargs)
        _note_file("saved", checkpoint_id, state_dict, together=True)
        return result

    checkpoint.save = wrapped


@recorder.guarded
def _note_file(kind, file, value, together=False):
    if not recorder.inside:  # inside, a collective is sending an object
        content, where = _outline(value), recorder.where()
        path = _file_name(file)
        recorder.fact(kind, path=path, content=content, where=where, together=together)


def _file_name(file):
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return recorder.place(name) if isinstance(name, str | os.PathLike) else None


def _outline(value):
    """What a checkpoint contains: numbers as they are, tensors as fingerprints."""
    if isinstance(value, torch.Tensor):
        return {"tensor": list(value.shape), "print": fingerprint([value])}
    if isinstance(value, dict):
        keys = {str(key): _outline(one) for key, one in value.items()}
        return {"keys": keys, "print": fingerprint(tensors_in(value))}
    if isinstance(value, list | tuple):
        return [_outline(one) for one in value[:20]]
    if isinstance(value, bool | int | float) or value is None:
        return value
    return value[:100] if isinstance(value, str) else type(value).__name__

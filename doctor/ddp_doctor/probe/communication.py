"""Watch process groups, collectives and the processes that a script starts."""

import contextlib
import functools
import importlib
import math
import os
import threading
from multiprocessing.process import BaseProcess
from urllib.parse import urlsplit

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
from _ddp_doctor import around, exceptions, imports, partings, passes, reductions
from _ddp_doctor.fingerprints import tensors_in
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel as DDP

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_gather_single", "all_reduce",
    "all_to_all", "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "monitored_barrier", "new_group", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list",
)  # fmt: skip
UNEVEN = ("all_to_all", "gather", "scatter")  # may have other sizes on each rank
FUNCTIONAL = {
    "all_gather_single", "all_gather_single_autograd", "all_gather_tensor",
    "all_gather_tensor_autograd", "all_reduce", "all_reduce_coalesced", "all_to_all_single",
    "all_to_all_single_autograd", "broadcast", "reduce_scatter_single",
    "reduce_scatter_single_autograd", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
}  # fmt: skip


def watch():
    spawn = importlib.import_module("torch.multiprocessing.spawn")  # the name is also a function
    spawn._wrap = _spawned(spawn._wrap)
    BaseProcess._bootstrap = _started(BaseProcess._bootstrap)
    threading.Barrier.wait = around(threading.Barrier.wait, after=recorder.noting("done"))
    DDP.__init__ = around(DDP.__init__, _begin_ddp, _note_ddp)
    partings.watch()
    DDP._sync_buffers = around(DDP._sync_buffers, _begin_buffers, recorder.noting("done"))
    for name in COLLECTIVES:
        own = {"then": functools.partial(reductions.note_result, name)}
        notes = functools.partial(_note_call, name), recorder.noting("done")
        replace(name, lambda call, notes=notes, own=own: around(call, *notes, **own))
    totals = reductions.note_before, reductions.note_after
    replace("all_reduce", lambda call: around(call, *totals, hides=False))
    replace("all_reduce", lambda call: around(call, reductions.note_names, hides=False))
    for name in ("send", "recv", "isend", "irecv"):
        replace(name, lambda send: around(send, _note_peer))
    replace("init_process_group", lambda join: around(join, _note_joining, _note_joined))
    replace("destroy_process_group", lambda leave: around(leave, after=recorder.noting("left")))
    recorder.watch(torch.cuda, "set_device", _note_device)
    recorder.watch(torch.accelerator, "set_device_index", _note_device)
    imports.after("torch.distributed._functional_collectives", _watch_functional)


def _watch_functional(module):
    """DTensor calls these. They return at once, and their result waits when it is needed."""
    for name in FUNCTIONAL & vars(module).keys():
        setattr(module, name, around(getattr(module, name), functools.partial(_note_call, name)))
    module.wait_tensor = around(module.wait_tensor, after=recorder.noting("done"))


def replace(name, wrap):
    """Put a wrapper in the place of a function of torch.distributed."""
    if hasattr(dist.distributed_c10d, name):
        wrapped = wrap(getattr(dist.distributed_c10d, name))
        for module in (dist, dist.distributed_c10d, dist.device_mesh):
            if hasattr(module, name):
                setattr(module, name, wrapped)


@recorder.guarded
def _note_call(name, *args, **kwargs):
    given = [*args, *kwargs.values()]
    unequal = "object" in name or name.startswith(UNEVEN)
    sent = [] if unequal else tensors_in(given)
    graph = torch.is_grad_enabled() and any(tensor.grad_fn for tensor in sent)
    gathers = name.startswith("all_gather") and not name.endswith("_autograd")
    if graph and gathers and recorder.count("cut") == 1:
        recorder.fact("cut", where=recorder.where())
    size = sum(tensor.numel() * tensor.element_size() for tensor in sent)
    ranks = next(filter(None, map(_ranks_of, given)), None)
    aside = threading.current_thread() is not threading.main_thread()
    aside = aside or bool(kwargs.get("use_local_synchronization"))  # of new_group
    recorder.call(
        "collective", what=name, bytes=size, part=aside or (ranks or math.inf) < _world_size(),
        alone=ranks == 1 < _world_size(), inside=passes.calls.running, where=recorder.where(),
    )  # fmt: skip


def _ranks_of(group):
    """How many ranks a group or a dimension of a mesh has; None for anything else."""
    if isinstance(group, dist.ProcessGroup | DeviceMesh):
        return group.size()
    if type(group) is tuple and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].size(group[1])
    return None


def _world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def _note_peer(*_, **__):
    inside = passes.calls.running
    if recorder.count(f"peer {inside}") == 1:
        recorder.fact("peer", inside=inside)


def _begin_ddp(ddp, module=None, *rest, **options):
    _note_call("DDP", [*getattr(module, "parameters", list)()], *rest, *options.values())


@recorder.guarded
def _begin_buffers(ddp):
    """A pass of a model with buffers begins with a broadcast, which waits for all ranks."""
    part, where = ddp.process_group is not dist.group.WORLD, recorder.where()
    what = "the broadcast of DDP's buffers"
    recorder.call(
        "collective", what=what, bytes=0, part=part, alone=False, inside=False, where=where
    )


@recorder.guarded
def _note_ddp(ddp, module, *_, **__):
    recorder.fact("done")
    passes.replicated.update(map(id, [module, *module.parameters()]))
    partings.note_wrapped(ddp)
    ignored = sum(name in ddp.parameters_to_ignore for name, _ in module.named_parameters())
    recorder.fact(
        "replicated", unused=ddp.find_unused_parameters, through=type(module).__name__,
        ignored=ignored, names=_names(module), where=recorder.where(),
    )  # fmt: skip


def _names(module):
    """DDP matches tensors of two ranks by their position: parameters, then buffers."""
    named = [*module.named_parameters(), *module.named_buffers()]
    return [name for name, _ in named[:2000]]


@recorder.guarded
def _note_device(device):
    index = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    recorder.fact("chosen", index=index.index, where=recorder.where())


def _note_joining(backend=None, init_method=None, *rest, store=None, **others):
    """`port` is where the ranks meet; None if it is not in a number that the script passes."""
    if not init_method or init_method == "env://":
        init_method = f"tcp://:{os.environ.get('MASTER_PORT')}"
    port = None
    with contextlib.suppress(ValueError):
        port = None if store else urlsplit(init_method).port
    address = init_method if "//" in init_method and not init_method.startswith("tcp://:") else None
    files, where = recorder.their_files(), recorder.where()
    recorder.call("joining", port=port, address=address, files=(*files,), where=where)


def _note_joined(*_, **__):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    recorder.fact("joined", rank=rank, world_size=world_size, backend=dist.get_backend())
    for name in ("add", "check", "compare_set", "get", "wait"):  # not in torchrun, always busy
        recorder.watch(dist.Store, name, after=recorder.noting("done"))


def _spawned(wrap):
    """mp.spawn catches exceptions and sends them to the parent as text, so watch inside it."""

    @functools.wraps(wrap)
    def wrapped(function, *rest):
        return wrap(_watched()(function), *rest)

    return wrapped


def _started(bootstrap):
    """A Process does the same. It may have a `run` of its class."""

    @functools.wraps(bootstrap)
    def wrapped(process, *rest, **options):
        process.run = _watched()(process.run)
        return bootstrap(process, *rest, **options)

    return wrapped


@contextlib.contextmanager
def _watched():
    """Record exceptions that a caller would catch and print."""
    try:
        yield
    except Exception as error:
        exceptions.note(error)
        raise

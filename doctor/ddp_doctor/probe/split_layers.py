"""Watch what divides a model among ranks, and the input that those of one layer should share."""

import weakref

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
from _ddp_doctor import imports, passes
from _ddp_doctor.fingerprints import fingerprint

_kinds = ()  # the classes of FSDP's units
ignored = set()  # ids of parameters that fully_shard leaves alone
_begun, _taken = [], {}  # modules and parameters of units that are made now; others', by id
_declared = 0  # the newest pass of which the first input is known


def watch():
    imports.after("torch.distributed.tensor", _watch_tensor)
    imports.after("torch.distributed.tensor.parallel", _watch_parallel)
    imports.after("torch.distributed.fsdp", _watch_fsdp)


def _watch_tensor(module):
    """All styles of parallelize_module, and those of other libraries, call this."""
    create = recorder.around(module.DTensor.from_local, _note_input, hides=False)
    module.DTensor.from_local = staticmethod(create)


def _watch_parallel(module):
    recorder.watch(module, "parallelize_module", after=_note_parallel, hides=False)


def _watch_fsdp(module):
    global _kinds
    recorder.watch(module, "fully_shard", _begin_unit, _note_sharded)
    first = module.FullyShardedDataParallel
    recorder.watch(first, "__init__", _begin_fsdp, _note_fsdp, hides=False)
    _kinds = first, getattr(module, "FSDPModule", first)


def _begin_fsdp(_, module, *__, **___):
    _begin_unit(module)


@recorder.guarded
def _begin_unit(module, *_, ignored_params=None, **__):
    """A unit replaces its parameters. One that an earlier unit has replaced was tied to it."""
    ignored.update(map(id, ignored_params or ()))
    modules = module if isinstance(module, list | tuple) else [module]
    own = [p for one in modules for p in _parameters(one)]
    if any(_taken.get(id(p), bool)() is p for p in own) and recorder.count("untied") == 1:
        recorder.fact("untied", where=recorder.where())
    _begun.append((modules, own))


def _end_unit():
    modules, own = _begun.pop()
    left = {id(p) for one in modules for p in one.parameters()}
    _taken.update((id(p), weakref.ref(p)) for p in own if id(p) not in left)


def _parameters(module):
    """Those that no unit inside of it has."""
    yield from (p for p in module._parameters.values() if p is not None)
    for child in module._modules.values():
        if child is not None and not isinstance(child, _kinds):
            yield from _parameters(child)


@recorder.guarded
def _note_sharded(module, *_, **__):
    _end_unit()
    recorder.fact("sharded", alone=_is_alone(_meshes(module)), where=recorder.where())


@recorder.guarded
def _note_parallel(module, *_, **__):
    _note_split("parallelize_module", _meshes(module))


@recorder.guarded
def _note_fsdp(module, /, *_, **__):
    """In a group of one, it reduces no gradient."""
    _end_unit()
    _note_split(type(module).__name__, [module.process_group.size()])


def _note_split(what, sizes):
    recorder.fact("split", what=what, alone=_is_alone(sizes), where=recorder.where())


def _meshes(module):
    return [p.device_mesh.size() for p in module.parameters() if hasattr(p, "device_mesh")]


def _is_alone(sizes):
    return max(sizes, default=0) == 1 < dist.get_world_size()


@recorder.guarded
def _note_input(tensor, device_mesh=None, placements=None, *, run_check=False, **_):
    """Of the first one in a pass. The check of torch would make it equal."""
    global _declared
    number = recorder.counts.get("forward", 0) + 1
    if number == _declared or not passes.calls.running or not torch.is_grad_enabled():
        return
    _declared = number
    equal = [n for n, place in enumerate(placements or ()) if place.is_replicate()]
    if equal and device_mesh is not None and not run_check and recorder.due(number):
        ranks = dist.get_process_group_ranks(device_mesh.get_group(equal[0]))
        recorder.fact("declared", n=number, ranks=ranks, print=fingerprint(tensor))

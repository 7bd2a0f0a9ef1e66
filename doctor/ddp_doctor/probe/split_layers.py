"""Watch what divides a model among ranks, and the input that those of one layer should share."""

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
from _ddp_doctor import imports, passes
from _ddp_doctor.fingerprints import fingerprint

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
    recorder.watch(module, "fully_shard", after=_note_sharded)
    kind = module.FullyShardedDataParallel
    recorder.watch(kind, "__init__", after=_note_fsdp, hides=False)


@recorder.guarded
def _note_sharded(module, *_, **__):
    recorder.fact("sharded", alone=_is_alone(_meshes(module)), where=recorder.where())


@recorder.guarded
def _note_parallel(module, *_, **__):
    _note_split("parallelize_module", _meshes(module))


@recorder.guarded
def _note_fsdp(module, /, *_, **__):
    """In a group of one, it reduces no gradient."""
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

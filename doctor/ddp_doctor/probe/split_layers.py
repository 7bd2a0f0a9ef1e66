"""Watch what divides a layer among ranks, and the input that these ranks should share."""

import functools

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
    module.DTensor.from_local = staticmethod(_with(module.DTensor.from_local, _note_input))


def _watch_parallel(module):
    module.parallelize_module = _with(module.parallelize_module, after=_note_split)


def _watch_fsdp(module):
    kind = module.FullyShardedDataParallel
    kind.__init__ = _with(kind.__init__, after=_note_split)


def _with(function, before=None, after=None):
    """`recorder.around` would hide collectives inside."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        note = not recorder.compiling()
        if note and before:
            before(*args, **kwargs)
        result = function(*args, **kwargs)
        if note and after:
            after(*args, **kwargs)
        return result

    return wrapped


@recorder.guarded
def _note_split(module, *_, **__):
    what = type(module).__name__
    sizes = [p.device_mesh.size() for p in module.parameters() if hasattr(p, "device_mesh")]
    if what == "FullyShardedDataParallel":  # in a group of one, it reduces no gradient
        sizes = [module.process_group.size()]
    else:
        what = "parallelize_module"
    alone = max(sizes, default=0) == 1 < dist.get_world_size()
    recorder.fact("split", what=what, alone=alone, where=recorder.where())


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

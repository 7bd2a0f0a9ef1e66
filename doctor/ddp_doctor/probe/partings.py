"""Watch what can make replicas differ: parameters that DDP does not reduce, and other writes."""

import sys
import weakref
from traceback import walk_stack

import _ddp_doctor as recorder
import torch
from _ddp_doctor import passes, split_layers
from _ddp_doctor.fingerprints import FLAT, fingerprint, is_part
from torch.nn.parallel import DistributedDataParallel as DDP

MOST = 2000  # parameters of an optimizer to compare one by one
SHARDS = "to_local", FLAT  # attributes of FSDP's parameters, which it writes to
WRITES = ("copy_", "lerp_", "mul_", "add_", "sub_", "div_", "fill_", "zero_", "clamp_")

wrapped = weakref.WeakKeyDictionary()  # DDP: its Wrap
_functions = set()  # code of the user's functions that wrap a model
_came = {}  # by id of a parameter registered or unfrozen after wrapping: a line
_names = {}  # by optimizer: what the last fact "named" said
_last = {}  # by optimizer: after its last step, the passes of each DDP, and versions
_prints = {}  # by optimizer: the fingerprints after a looked-at step
_sought = {}  # while the line that writes is sought: addresses of parameters, their optimizer
_left = 64  # steps in which it is


class Wrap:
    """What the reducer of a DDP object has, and the passes through it."""

    def __init__(self, ddp):
        self.number, self.where = len(wrapped), recorder.where()
        named, ignored = ddp.module.named_parameters(), ddp.parameters_to_ignore
        self.known = {id(p): p.requires_grad for name, p in named if name not in ignored}
        self.passes = [0, 0]  # in no_sync, others
        self.synced = self.no_sync = None  # of the last pass; a line


def watch():
    recorder.watch(DDP, "_pre_forward", _count_pass, hides=False)
    recorder.watch(DDP, "no_sync", _note_no_sync)


@recorder.guarded
def note_wrapped(ddp):
    if not wrapped:
        at = {"register_parameter": torch.nn.Module, "requires_grad_": torch.Tensor}
        for name, owner in at.items():
            recorder.watch(owner, name, _note_came)
    wrapped[ddp] = Wrap(ddp)
    running = (frame.f_code for frame, _ in walk_stack(sys._getframe()))
    _functions.add(next((code for code in running if recorder.is_theirs(code.co_filename)), None))


def _count_pass(ddp, *_, **__):
    wrap = wrapped.get(ddp)
    if wrap and torch.is_grad_enabled():
        wrap.synced = ddp.require_backward_grad_sync
        wrap.passes[wrap.synced] += 1


@recorder.guarded
def _note_no_sync(ddp):
    if ddp in wrapped:
        wrapped[ddp].no_sync = recorder.where()


@recorder.guarded
def _note_came(one, given=True, parameter=None, *_, **__):
    """A module registers a parameter, or a parameter may be unfrozen: where, rather in the function
    that wraps the model than in a helper."""
    parameter = one if isinstance(one, torch.nn.Parameter) else parameter
    if given is False or parameter is None or id(parameter) in _came or len(_came) > MOST:
        return
    running = (frame for frame, _ in walk_stack(sys._getframe()))
    wraps = next((frame for frame in running if frame.f_code in _functions), None)
    _came[id(parameter)] = recorder.where(wraps)


def of_step(opt, parameters, each):
    """What a fact of a step says about each parameter, and about the passes since the last one.

    `each`: the fingerprints of a parameter and its gradient.
    """
    if not passes.is_one_of_several() or len(parameters) > MOST:
        return {"each": [], "passes": []}
    if _names.get(opt) != (named := _named(parameters)):
        _names[opt] = named
        recorder.fact("named", opt=opt, parameters=named)
    _prints[opt], (before, _) = [one for one, _ in each], _last.get(opt, ({}, []))
    through = [
        [w.number, *[a - b for a, b in zip(w.passes, before.get(w.number, (0, 0)), strict=True)],
         w.synced, w.no_sync]
        for w in wrapped.values()
    ]  # fmt: skip
    return {"each": each, "passes": through}


def _named(parameters):
    """Of each: its name; its DDP object's model, number and line; how DDP has it; a line."""
    found = {}
    for ddp, wrap in wrapped.items():
        for name, p in ddp.module.named_parameters():
            how = {True: "reduced", False: "frozen", None: "added"}[wrap.known.get(id(p))]
            own = type(ddp.module).__name__, wrap.number, wrap.where, how, _came.get(id(p))
            found[id(p)] = [name, *own]
    return [
        found.get(id(p)) or [passes.names.get(id(p)), None, None, None, _apart(p), None]
        for p in parameters
    ]


def _apart(parameter):
    if is_part(parameter):
        return "part"
    return "ignored" if id(parameter) in split_layers.ignored else "outside"


def note_stepped(opt, parameters):
    """After each step: what tells later, cheaply, whether something else has written."""
    _last[opt] = {w.number: (*w.passes,) for w in wrapped.values()}, _versions(parameters)


def _versions(parameters):
    return [p._version for p in (*parameters[:1], *parameters[-1:])]


def moved(opt, parameters):
    """Whether something else has written to them since the last step."""
    return opt in _last and _last[opt][1] != _versions(parameters)


@recorder.guarded
def note_before(opt, n, parameters):
    """Whether weights have changed since step n. If so, seek the line that does it."""
    global _left
    prints = _prints.pop(opt, None)
    changed = moved(opt, parameters)
    if prints and len(prints) == len(parameters):
        changed = prints != [*map(fingerprint, parameters)]
        if changed:
            recorder.fact("changed", opt=opt, n=n)
    if _sought:
        _left -= opt in _sought.values()
        if not _left:
            _stop()
    elif changed and _left == 64 and not any(hasattr(parameters[0], s) for s in SHARDS):
        _sought.update((p.data_ptr(), opt) for p in parameters if p.numel())
        for name in WRITES:
            recorder.watch(torch.Tensor, name, _note_write, hides=False)


@recorder.guarded
def _note_write(tensor, *_, **__):
    from _ddp_doctor import optimizers  # which imports this

    opt = None if optimizers.stepping or tensor.is_meta else _sought.get(tensor.data_ptr())
    if opt is not None:
        recorder.fact("written", opt=opt, where=recorder.where())
        _stop()


def _stop():
    """Give torch's functions back, for good."""
    global _left
    _left = 0
    _sought.clear()
    for name in WRITES:
        delattr(torch.Tensor, name)  # they are those of its base class

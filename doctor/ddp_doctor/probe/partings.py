"""Watch what can make replicas differ: parameters that DDP does not reduce, and other writes."""

import functools
import sys
import weakref

import _ddp_doctor as recorder
import torch
from _ddp_doctor import passes
from _ddp_doctor.fingerprints import fingerprint, local
from torch.nn.parallel import DistributedDataParallel as DDP

MOST = 2000  # parameters of an optimizer to compare one by one
WRITES = ("copy_", "lerp_", "mul_", "add_", "sub_", "div_", "fill_", "zero_", "clamp_")
SOUGHT = 64  # steps in which to seek the line that writes

wrapped = weakref.WeakKeyDictionary()  # DDP: its Wrap
_functions = set()  # code of the user's functions that wrap a model
_came = {}  # ids of parameters registered or unfrozen after wrapping: a line
_names = {}  # by optimizer: what the last fact "named" said
_before = {}  # by optimizer: the passes of each DDP until its last step
_after = {}  # by optimizer: the fingerprints after a looked-at step
_sought = {}  # addresses of the parameters whose writer is sought, and their optimizer
_left = 0  # steps in which it is still sought


class Wrap:
    """What the reducer of a DDP object has, and the passes through it."""

    def __init__(self, ddp):
        self.number, self.where = len(wrapped), recorder.where()
        named, ignored = ddp.module.named_parameters(), ddp.parameters_to_ignore
        own = [p for name, p in named if name not in ignored]
        self.known = {id(p) for p in own}
        self.reduced = {id(p) for p in own if p.requires_grad}
        self.passes = [0, 0]  # in no_sync, others
        self.synced = self.no_sync = None  # of the last pass; a line


def watch():
    DDP._pre_forward = _counted(DDP._pre_forward)
    DDP.no_sync = recorder.around(DDP.no_sync, _note_no_sync)


@recorder.guarded
def note_wrapped(ddp):
    if not wrapped:
        torch.nn.Module.register_parameter = recorder.around(
            torch.nn.Module.register_parameter, after=_note_registered)
    wrap = wrapped[ddp] = Wrap(ddp)
    if wrap.known != wrap.reduced and not hasattr(torch.Tensor.requires_grad_, "__wrapped__"):
        torch.Tensor.requires_grad_ = recorder.around(torch.Tensor.requires_grad_, _note_unfrozen)
    frame = sys._getframe(1)
    while frame and not recorder.is_theirs(frame.f_code.co_filename):
        frame = frame.f_back
    _functions.update([frame.f_code] if frame else [])


def _counted(pre_forward):
    @functools.wraps(pre_forward)
    def counted(ddp, *args, **kwargs):
        wrap = wrapped.get(ddp)
        if wrap and torch.is_grad_enabled() and not recorder.compiling():
            wrap.synced = ddp.require_backward_grad_sync
            wrap.passes[wrap.synced] += 1
        return pre_forward(ddp, *args, **kwargs)

    return counted


@recorder.guarded
def _note_no_sync(ddp):
    if ddp in wrapped:
        wrapped[ddp].no_sync = recorder.where()


@recorder.guarded
def _note_registered(module, name=None, param=None, *_, **__):
    if param is not None and len(_came) < MOST:
        _came[id(param)] = _line()


@recorder.guarded
def _note_unfrozen(tensor, requires_grad=True):
    known = id(tensor) in _came or not isinstance(tensor, torch.nn.Parameter)
    if requires_grad and not known and not tensor.requires_grad and len(_came) < MOST:
        _came[id(tensor)] = _line()


def _line():
    """A line of the function that wraps the model, rather than of a helper that it calls."""
    frame = sys._getframe(1)
    while frame:
        if frame.f_code in _functions:
            return recorder.line_of(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return recorder.where()


def of_step(opt, parameters):
    """What a fact of a step says about each parameter, and about the passes since the last one."""
    if not passes.is_one_of_several() or len(parameters) > MOST:
        return {"each": [], "passes": []}
    named = _named(parameters)
    if _names.get(opt) != named:
        _names[opt] = named
        recorder.fact("named", opt=opt, parameters=named)
    each = [(fingerprint(p), None if p.grad is None else fingerprint(p.grad)) for p in parameters]
    _after[opt] = [one for one, _ in each]
    before, through = _before.get(opt, {}), []
    for wrap in wrapped.values():
        old = before.get(wrap.number, (0, 0))
        made = [now - then for now, then in zip(wrap.passes, old, strict=True)]
        through.append([wrap.number, *made, wrap.synced, wrap.no_sync])
    return {"each": each, "passes": through}


def _named(parameters):
    """Of each: its name; its DDP object's model, number and line; how DDP has it; a line."""
    found = {}
    for ddp, wrap in wrapped.items():
        for name, one in ddp.module.named_parameters():
            how = "reduced" if id(one) in wrap.reduced else "frozen"
            how = how if id(one) in wrap.known else "added"
            kind = type(ddp.module).__name__
            found[id(one)] = [name, kind, wrap.number, wrap.where, how, _came.get(id(one))]
    return [
        found.get(id(p)) or [passes.names.get(id(p)), None, None, None, "outside", None]
        for p in parameters
    ]


def note_stepped(opt, parameters):
    """After each step: remember what tells cheaply whether something else writes."""
    _before[opt] = {wrap.number: (*wrap.passes,) for wrap in wrapped.values()}
    return _versions(parameters)


def _versions(parameters):
    return [p._version for p in (parameters[0], parameters[-1])] if parameters else []


@recorder.guarded
def note_before(opt, n, parameters, versions):
    """Whether the weights have changed since step n, and not by a step."""
    global _left
    prints, changed = _after.pop(opt, None), versions != _versions(parameters)
    if prints is not None and not any(hasattr(p, "to_local") for p in parameters):
        now = [fingerprint(p) for p in parameters]
        changed = now != prints and len(now) == len(prints)
        if changed:
            which = [k for k, pair in enumerate(zip(now, prints, strict=True)) if len({*pair}) > 1]
            recorder.fact("changed", opt=opt, n=n, which=which)
    if changed and not _left and not _sought and passes.is_one_of_several():
        _seek(opt, parameters)
    elif _left and opt in _sought.values():
        _left -= 1
        if not _left:
            _stop()


def _seek(opt, parameters):
    """From now on, ask each function that writes to a tensor, until one writes to these."""
    global _left
    _left = SOUGHT
    _sought.update((local(p).data_ptr(), opt) for p in parameters)
    for name in WRITES:
        setattr(torch.Tensor, name, _asked(getattr(torch.Tensor, name)))
    for name in WRITES:
        if hasattr(torch, f"_foreach_{name}"):
            setattr(torch, f"_foreach_{name}", _asked(getattr(torch, f"_foreach_{name}")))


def _asked(write):
    @functools.wraps(write)
    def asked(to, *args, **kwargs):
        if _left and not recorder.compiling():
            _note_write(to[0] if isinstance(to, list | tuple) and to else to)
        return write(to, *args, **kwargs)

    return asked


@recorder.guarded
def _note_write(tensor):
    from _ddp_doctor import optimizers

    if optimizers.stepping or tensor.device.type == "meta":
        return
    opt = _sought.get(tensor.data_ptr())
    if opt is not None:
        recorder.fact("written", opt=opt, n=optimizers.steps.get(opt, 0), where=recorder.where())
        _stop()


def _stop():
    """Put torch's functions back."""
    global _left
    _left = 0
    for name in WRITES:
        delattr(torch.Tensor, name)  # it is its base's
        if hasattr(write := getattr(torch, f"_foreach_{name}", None), "__wrapped__"):
            setattr(torch, f"_foreach_{name}", write.__wrapped__)

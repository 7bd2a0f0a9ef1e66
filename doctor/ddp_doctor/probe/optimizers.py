"""Watch the steps of optimizers."""

import math
import weakref
from collections import deque

import _ddp_doctor as recorder
import torch
from _ddp_doctor import beside, draws, micro_batches, partings, passes, seeds
from _ddp_doctor.fingerprints import fingerprint, is_part, local, rounded, some, tensors_in
from torch.optim import optimizer as hooks

RECENT = 16  # steps of all: kept for longer, those of an earlier stage would take memory
moments = deque(maxlen=RECENT)  # after steps: the optimizer, all steps so far, and its replica
last = None  # the last one that made a step
stepping = None  # the one whose step runs; ZeroRedundancyOptimizer calls another one's

steps, _used = {}, {}  # by number: its steps, and the passes it used
_passed, _zeroed = {}, {}  # by number: the backward passes until its last step, or zero_grad
_ended = {}  # by number: how many iterations over loaders had ended at its last step
_windows = {}  # by number, passes between steps, those since zero_grad, and what ended meanwhile
_recent = {}  # by number: one that stepped, and how many steps of all there were
_numbers = {}  # by id: an optimizer may be unhashable


def watch():
    hooks.register_optimizer_step_pre_hook(_before_step)
    hooks.register_optimizer_step_post_hook(_after_step)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        owner.zero_grad = recorder.around(owner.zero_grad, after=_note_zeroed)
    recorder.at_end.append(_note_end)


def _before_step(optimizer, args, kwargs):
    global stepping
    if not stepping:
        stepping = optimizer
        _note_before_step(optimizer, any(map(callable, [*args[1:], *kwargs.values()])))


@recorder.guarded
def _note_before_step(optimizer, closure):
    """A step with a closure makes its passes itself, as LBFGS does."""
    number = number_of(optimizer)
    if number in steps and passes.is_one_of_several():
        partings.note_before(number, steps[number], parameters_of(optimizer))
    if recorder.EVERY and number in steps:
        prints = _prints(parameters_of(optimizer))
        n, rates = steps[number] + 1, _rates(optimizer)
        recorder.fact("before", opt=number, n=n, parameters=prints, rates=rates)
    if recorder.EVERY:
        beside.before_step()
    if number in steps or not _is_one_to_look_at(number):
        return
    optimizer.register_load_state_dict_post_hook(note_loaded)
    if closure or _follows_a_pass(optimizer):
        parameters = parameters_of(optimizer)
        recorder.fact(
            "first", opt=number, type=type(optimizer).__name__,
            **_replica(optimizer, _each(parameters)), rates=_rates(optimizer),
            sharded=any(map(is_part, parameters)),
            tensor_parallel=any(map(_splits_a_layer, parameters)),
            numbers=sum(p.numel() for p in parameters), where=recorder.where(),
            halves=[*rounded(parameters)] if recorder.EVERY else [],
        )  # fmt: skip


def number_of(optimizer):
    """A script may make a new one each epoch."""
    if id(optimizer) not in _numbers:
        _numbers[id(optimizer)] = recorder.count("optimizer") - 1
        weakref.finalize(optimizer, _numbers.pop, id(optimizer)).atexit = False
    return _numbers[id(optimizer)]


def _is_one_to_look_at(number):
    """Of very many, each with few steps, only some."""
    return recorder.due(number // 8 + 1)


def _after_step(optimizer, args, kwargs):
    global stepping, last
    if optimizer is not stepping:
        return
    stepping = None
    if _follows_a_pass(optimizer):
        opt, last = number_of(optimizer), optimizer
        _used[opt], _recent[opt] = _passes(), (optimizer, recorder.count("step"))
        _note_step(optimizer, opt)
        _note_after_each(optimizer, opt)


@recorder.guarded
def _note_after_each(optimizer, opt):
    _note_window(opt)
    draws.note_step(recorder.counts["step"])
    if passes.is_one_of_several():
        seeds.note_step(opt, steps[opt])
        partings.note_stepped(opt, parameters_of(optimizer))


def made(optimizer):
    """How many steps it made, or the one that it wraps, as Accelerate's does."""
    inner = getattr(optimizer, "optimizer", None)
    own = steps.get(_numbers.get(id(optimizer)), 0)
    return own if own or inner in (None, optimizer) else made(inner)


@recorder.guarded
def _note_zeroed(owner, *_, **__):
    """A model's own zero_grad counts for all optimizers of its parameters."""
    micro_batches.note_zeroed()
    made, module = recorder.counts.get("backward", 0), isinstance(owner, torch.nn.Module)
    own = {*map(id, owner.parameters() if module else parameters_of(owner))}
    for opt, (optimizer, _) in _recent.items():
        if not own.isdisjoint(map(id, parameters_of(optimizer))):
            lost = made > max(_passed.get(opt, made), _zeroed.get(opt, 0))
            if lost and recorder.count("cleared") == 1:
                recorder.fact("cleared", where=recorder.where())
            _zeroed[opt] = made


def _note_window(opt):
    """How many backward passes came since its last step, and since its gradients were zeroed."""
    passes, ended = recorder.counts.get("backward", 0), recorder.counts.get("ended", 0)
    if opt in _passed:
        ends = ended != _ended[opt]
        key = opt, passes - _passed[opt], passes - _zeroed.get(opt, 0), ends
        if key in _windows or len(_windows) < 1000:
            _windows[key] = _windows.get(key, 0) + 1
    _passed[opt], _ended[opt] = passes, ended


def _follows_a_pass(optimizer):
    """Whether it steps after a pass; else torch itself steps, to make its state."""
    return _passes() > _used.get(number_of(optimizer), 0)


def _passes():
    return recorder.counts.get("forward", 0) + recorder.counts.get("backward", 0)


@recorder.guarded
def _note_step(optimizer, opt):
    number = steps[opt] = steps.get(opt, 0) + 1
    for old in [old for old in _recent if _recent[opt][1] - _recent[old][1] > RECENT]:
        del _recent[old]
    if not _is_one_to_look_at(opt) or not recorder.due(number):
        return
    passes.write_losses()
    parameters = parameters_of(optimizer)
    each = _each(parameters)
    replica, apart = _replica(optimizer, each), partings.of_step(opt, parameters, each)
    moments.append((opt, {"step": recorder.counts["step"], "made": {**steps}}, replica))
    gradients = [local(p.grad) for p in parameters if p.grad is not None]
    squares = [float(g.float().pow(2).sum()) for g in gradients]
    dense = [p for p in parameters if p.grad is not None and p.grad.layout is torch.strided]
    names = [passes.names.get(id(p)) for p in parameters if p.grad is None]
    recorder.fact(
        "step", opt=opt, n=number, type=type(optimizer).__name__, **replica, **apart,
        rates=_rates(optimizer),
        norm=math.sqrt(sum(squares)) if gradients else None, without=[*filter(None, names)][:20],
        reached=any(bool(some(local(p.grad)).any()) for p in dense),
        backwards=recorder.counts.get("backward", 0), where=recorder.where(),
        loader=passes.loader, through=passes.through, in_train_mode=passes.in_train_mode,
    )  # fmt: skip
    if passes.is_one_of_several() and number <= 8:  # while all steps are looked at
        passes.note_buffers(opt, number)


@recorder.guarded
def note_loaded(optimizer):
    """Its state was loaded. An only step before that made the state to load into, and is none."""
    global last
    opt = number_of(optimizer)
    seeds.states.pop(opt, None)  # it may begin again on purpose
    if steps.get(opt) == 1:
        del steps[opt], _recent[opt]
        recorder.count("step", -1)
        last = None if last is optimizer else last
        recorder.fact("prepared", opt=opt)


def recent():
    """The optimizers that made one of the last steps. A thread may ask while one is made."""
    return [optimizer for optimizer, _ in [*_recent.values()]]


def _rates(optimizer):
    """Its learning rates. Some optimizers have none, or choose it themselves."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    return [float(rate) for rate in rates if rate is not None]


def parameters_of(optimizer):
    """Those that this rank has: one stage of a pipeline may leave the others on `meta`."""
    return [p for group in optimizer.param_groups for p in group["params"] if not p.is_meta]


def state_of(optimizer):
    """The tensors of its state, also of an optimizer that it wraps."""
    state = {**optimizer.state}
    for inner in vars(optimizer).values():
        state |= inner.state if isinstance(inner, torch.optim.Optimizer) else {}
    return tensors_in([state.get(p, {}) for p in parameters_of(optimizer)])


def _splits_a_layer(parameter):
    """Whether it is split other than by FSDP, whose shards divide the first dimension once."""
    placements = getattr(parameter, "placements", ())
    shards = [one for one in placements if not one.is_replicate()]
    return len(shards) > 1 or any(not one.is_shard(0) for one in shards)


def _each(parameters):
    """The fingerprints of each parameter and of its gradient."""
    return [(fingerprint(p), None if p.grad is None else fingerprint(p.grad)) for p in parameters]


def _replica(optimizer, each):
    """Sorted, because an optimizer takes a set, too, which has another order in each process."""
    gradients = [print for _, print in each if print]
    parameters, state = [print for print, _ in each], _prints(state_of(optimizer))
    return {"parameters": sorted(parameters), "state": state, "gradient": sorted(gradients)}


def _prints(tensors):
    return sorted(map(fingerprint, tensors))


@recorder.guarded
def _note_end():
    """Without the probe, what it keeps would be gone before Python takes itself apart."""
    global last
    if last is not None:
        made = recorder.counts["step"]
        ends = {number_of(one): _prints(parameters_of(one)) for one in recent()}
        moved = [number_of(o) for o in recent() if partings.moved(number_of(o), parameters_of(o))]
        opt = number_of(last)
        recorder.fact(
            "last", opt=opt, **_replica(last, _each(parameters_of(last))), steps=made, made=steps,
            ends=ends, moved=moved, windows=[[*key, times] for key, times in _windows.items()],
        )  # fmt: skip
    _recent.clear()
    last = None

"""Watch forward passes and backward passes."""

import contextlib
import functools
import sys
import threading
from traceback import walk_stack

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
from _ddp_doctor import causality, kept, micro_batches
from _ddp_doctor.fingerprints import fingerprint, local, tensors_in
from torch.compiler import is_dynamo_compiling
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS = 64  # of a batch to tell apart
IN_A_STEP = 4  # passes without gradients that a training step may make, as for a teacher


class Calls(threading.local):
    running = False  # whether a module is called in this thread: calls inside it are no facts


calls = Calls()
replicated = set()  # ids of the models in DDP, and of the parameters that it synchronizes
model = torch.nn.Module()  # the last that was called, without its wrappers
names = {}  # of parameters, by id
through, in_train_mode = None, None  # of the last forward pass with gradients: a class, its mode

_untouched = []  # statistics of BatchNorm that an evaluation found as they begin, and the fact
_buffers = {}  # as they were after the last step
_losses, _first_loss = [], 1
_noted = False  # whether the backward pass that runs is a fact
_note_done = recorder.noting("done", what="backward")
loader = None  # the number of the loader from which the last batch came
_in_a_row, _backwards = 0, None  # passes in train mode and without gradients, since this backward


def watch():
    torch.nn.Module.__call__ = _watched(torch.nn.Module.__call__)
    autograd = torch.autograd
    autograd.backward = recorder.around(autograd.backward, _begin_backward, _end_backward)
    averages = torch.optim.swa_utils  # batch statistics are found in train mode
    averages.update_bn = unnoticed()(averages.update_bn)
    torch.jit.trace = unnoticed()(torch.jit.trace)  # its graph would have our calls, too
    autograd.grad = recorder.around(autograd.grad, _counting("grad"))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    plateau.step = recorder.around(plateau.step, _note_metric)
    recorder.at_end.append(_note_end)


@recorder.guarded
def _note_metric(scheduler, metrics, *_, **__):
    """It reads the metric itself, so a GPU waits anyway."""
    if is_one_of_several() and recorder.due(number := recorder.count("metric")):
        recorder.fact("judged", n=number, value=float(metrics), where=recorder.where())


def _counting(kind):
    return lambda *_, **__: recorder.count(kind)


def bare(module):
    """The module inside DDP and torch.compile."""
    while isinstance(module, DDP) or "_orig_mod" in module._modules:  # hasattr would be slow
        module = module.module if isinstance(module, DDP) else module._orig_mod
    return module


@contextlib.contextmanager
def unnoticed():
    """Meanwhile, calls of modules are no facts."""
    before, calls.running = calls.running, True
    try:
        yield
    finally:
        calls.running = before


def _watched(call):
    """Of nested calls, only the outermost is a fact. Global hooks would make each of them slow."""
    plain = call is torch.nn.Module._wrapped_call_impl

    @functools.wraps(call)
    def wrapped(module, *args, **kwargs):
        if is_dynamo_compiling():
            return call(module, *args, **kwargs)
        if calls.running and plain and module._compiled_call_impl is None:
            return module._call_impl(*args, **kwargs)  # as `call` would: a frame less
        if calls.running or recorder.compiling():
            return call(module, *args, **kwargs)
        inputs = _inputs(args, kwargs)
        with unnoticed():
            output = call(module, *args, **kwargs)
        if inputs and threading.current_thread() is threading.main_thread():
            _note_forward(module, args, kwargs, inputs)
        elif replicated and "bypass" not in recorder.counts:
            _note_bypass(module)
        return output

    return wrapped


@recorder.guarded
def _inputs(args, kwargs):
    """Before the call: the model may replace what is in a dict, or ask for gradients of its input.

    An input that has some before is another model's output, and no fact.
    """
    found = tensors_in([*args, *kwargs.values()])
    return found if found and not found[0].requires_grad else []


@recorder.guarded
def _note_forward(module, args, kwargs, inputs):
    """Record a model's input. A loss module has no parameters and does not count."""
    global model, through, in_train_mode
    parameter = next(iter(module.parameters()), None)  # an override may return a list
    if parameter is None:
        return
    model = bare(module)
    trained = parameter.requires_grad or any(p.requires_grad for p in module.parameters())
    if not trained or not torch.is_grad_enabled():
        _note_evaluation(module, trained)
        return
    through, in_train_mode = type(module).__name__, model.training
    number = recorder.count("forward")
    if replicated and "bypass" not in recorder.counts:
        _note_bypass(module)
    if not recorder.due(number):
        return
    if number == 1:
        names.update((id(p), name) for name, p in model.named_parameters())
    first = local(inputs[0].detach())
    rows = first[:ROWS] if first.ndim else first.reshape(1)
    recorder.fact(
        "forward", n=number, rows=[*map(fingerprint, rows)], inputs=[*map(fingerprint, inputs)],
        samples=len(inputs[0]) if inputs[0].ndim else 1, through=through,
        sync=getattr(module, "require_backward_grad_sync", None), where=recorder.where(),
        loader=loader, live=_live(module),
    )  # fmt: skip
    if number == 2 and not hasattr(parameter, "to_local"):
        with unnoticed():
            causality.attempt(model, args, kwargs)


@recorder.guarded
def _note_bypass(module):
    """Perhaps a model in DDP, or a part of one, perhaps called with another model's output."""
    own = id(next(iter(module.parameters()), None)) in replicated and torch.is_grad_enabled()
    if own and not any(isinstance(part, DDP) for part in module.modules()):
        recorder.count("bypass")
        recorder.fact("bypass", **_bypass())


def _bypass():
    """What is called in place of DDP, and where.

    `ddp.module.forward(x)` is no call of a module; the first one is inside of it.
    """
    for frame, _ in walk_stack(sys._getframe()):
        own = frame.f_locals.get("self")
        if isinstance(own, torch.nn.Module) and id(own) in replicated:
            method = frame.f_code.co_name
            name = type(own).__name__ + (f".{method}" if method != "forward" else "")
            return {"through": name, "where": recorder.where(frame.f_back)}
    return {"through": through, "where": recorder.where()}


def _note_evaluation(module, trained):
    """Without gradients: an evaluation, unless dropout or batch statistics are still on.

    Not of another model's teacher or moving average, which is not trained.
    """
    global _in_a_row, _backwards
    recorder.count("evaluation")
    if "step" in recorder.counts and recorder.due(recorder.counts["evaluation"]):
        _look_at_statistics(module)
    begun = loader is not None or "backward" in recorder.counts  # else a pass to learn a shape
    if begun and trained and (live := _live(module)):
        now = recorder.counts.get("backward")
        _in_a_row, _backwards = _in_a_row * (now == _backwards) + 1, now
        of = None if _in_a_row > IN_A_STEP else loader
        if recorder.count(f"evaluation in train mode {of}") == 1:
            where, kind = recorder.where(), type(module).__name__
            recorder.fact("evaluation", live=live, through=kind, loader=of, where=where)
    elif begun and trained and is_one_of_several() and not module.training:
        averages = [m.running_mean for m in module.modules() if isinstance(m, _BatchNorm)]
        if any(one is not None for one in averages) and recorder.due(recorder.count("averages")):
            prints = [fingerprint(one) for one in averages if one is not None]
            recorder.fact("averages", n=recorder.counts["averages"], prints=prints,
                          where=recorder.where())  # fmt: skip


def note_buffers(opt, n):
    """Those of layers of the script's own that change slowly, as an average does: not noise."""
    prints, before = {}, _buffers.copy()
    for path, module in model.named_modules():
        passing = module._non_persistent_buffers_set
        for name, buffer in module._buffers.items() if recorder.is_theirs(_file(module)) else ():
            if buffer is not None and buffer.is_floating_point() and name not in passing:
                _buffers[opt, path, name] = now = local(buffer.detach()).flatten().double()
                was = before.get((opt, path, name), now[:0])
                if was.shape == now.shape and torch.cosine_similarity(was, now, dim=0) > 0.5:
                    prints[f"{path}.{name}".lstrip(".")] = fingerprint(buffer)
    if prints:
        recorder.fact("buffers", opt=opt, n=n, prints=prints)


def _file(module):
    return getattr(sys.modules.get(type(module).__module__), "__file__", None) or ""


def _look_at_statistics(module):
    """A model that is evaluated may be trained later."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and not m.training]
    found = [(m.running_mean, m.running_var) for m in norms]
    if norms and len(_untouched) < 8 and all(_is_fresh(*pair) for pair in found):
        about = {"norms": len(norms), "through": type(module).__name__}
        about |= {"steps": recorder.counts["step"], "where": recorder.where()}
        _untouched.append((found, about))


def _is_fresh(mean, var):
    """Whether these are the statistics with which BatchNorm begins."""
    return mean is not None and not bool(mean.any()) and bool((var == 1).all())


def _live(module):
    return [type(m).__name__ for m in module.modules() if m.training and _differs(m)]


def _differs(module):
    if isinstance(module, torch.nn.RNNBase | torch.nn.MultiheadAttention):
        return module.dropout > 0
    return isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0)


@recorder.guarded
def _begin_backward(tensors=(), *_, **__):
    """One of a single process waits for no other rank: most of those are only counted."""
    global _noted
    number, several = recorder.count("backward"), is_one_of_several()
    _noted = several or recorder.due(number)
    if _noted:
        recorder.call("backward", where=recorder.where())
    if several:
        _note_loss(number, tensors_in([tensors]))
    micro_batches.note_backward()


def _end_backward(tensors=(), *_, **__):
    kept.note_backward(tensors)
    if _noted:
        _note_done()


def _note_loss(number, tensors):
    global _first_loss
    _first_loss = _first_loss if _losses else number
    alone = len(tensors) == 1 and tensors[0].numel() == 1
    _losses.append(tensors[0].detach().clone() if alone else None)  # it may be reduced in place
    if len(_losses) == 256:
        write_losses()


def write_losses():
    """Read later, so that no GPU waits for it."""
    if _losses:
        values = [None if loss is None else float(loss) for loss in _losses]
        recorder.fact("losses", first=_first_loss, values=values)
        _losses.clear()


@recorder.guarded
def _note_end():
    global model
    write_losses()
    for found, about in _untouched:
        if all(_is_fresh(*pair) for pair in found):
            recorder.fact("fresh", **about)
    model = torch.nn.Module()


def is_one_of_several():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

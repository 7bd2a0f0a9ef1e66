"""Watch which samples a model sees and which gradients they give; fail if the check asks for it."""

import functools
import inspect
import json
import os
import runpy
import time
from collections import Counter
from pathlib import Path

import _ddp_doctor as recorder
import torch
import torch.distributed as dist
import torch.nn.functional as F
from _ddp_doctor import beside, communication, imports, optimizers, passes
from _ddp_doctor.begin import before
from _ddp_doctor.fingerprints import local, tensors_in
from torch.nn.parallel import DataParallel
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import optimizer as hooks

FEW = 5000  # parameters; the gradients of a larger model are not recorded

_fault = json.loads(os.environ.get("WORKSHOP_FAULT", "{}"))
_trained = 0  # samples that a model saw
_random = None  # the state of torch's generator before the running forward pass
_moved = set()  # ids of the modules that were moved to a device
_pending = {}  # by id: a collective that runs, and the line that started it
_within = Counter()  # in the backward passes of this step: layers called, sums sent
_moments = set()  # how many gradients were there when a backward pass called a layer
_expected, _sizes = {}, []  # by parameter: the summed gradient of this step's samples; its batches


def watch():
    """The hooks of optimizers.py were registered before, so they run before these."""
    torch.nn.Module.__call__ = _watched(torch.nn.Module.__call__)
    _note(dist, "init_process_group", _note_wanted)
    _note(torch.nn.Module, "_apply", lambda module, *_: _moved.add(id(module)))
    _note(DDP, "__init__", _note_wrapped)
    for name, kind in (("step", "scaled"), ("load_state_dict", "rescaled")):
        _note(torch.amp.GradScaler, name, recorder.noting(kind))
    communication.replace("all_reduce", _started)
    communication.replace("reduce", _as_with_nccl)
    scatter = "reduce_scatter_single"  # reduce_scatter_tensor before torch 2.13
    scatter = scatter if hasattr(dist, scatter) else "reduce_scatter_tensor"
    for name, kind in (("all_reduce", "all-reduce"), (scatter, "reduce-scatter")):
        communication.replace(name, functools.partial(_counted, kind))
    saves = "torch.distributed.checkpoint"
    imports.after(saves, lambda module: _note(module, "async_save", recorder.noting("meanwhile")))
    for name in ("wait", "is_completed", "get_future"):
        _note(dist.Work, name, lambda work, *_: _pending.pop(id(work), None))
    recorder.at_end.append(_note_pending)
    hooks.register_optimizer_step_pre_hook(_before_step)
    beside.before_step = beside.at_save = lambda: None  # to search all objects takes half the time


def _note(place, name, note):
    setattr(place, name, before(getattr(place, name), note))


@recorder.guarded
def _note_wrapped(ddp, module=None, *_, **__):
    recorder.fact("wrapped", moved=id(passes.bare(module)) in _moved, where=recorder.where())


def _started(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if (work := function(*args, **kwargs)) is not None:
            _pending[id(work)] = work, recorder.where()
        return work

    return wrapped


def _as_with_nccl(reduce):
    """gloo leaves sums of some ranks on those that should get none, and perhaps the right one."""

    @functools.wraps(reduce)
    def wrapped(tensor, dst=None, *args, group_dst=None, **kwargs):
        own = tensor.clone()
        work = reduce(tensor, dst, *args, group_dst=group_dst, **kwargs)
        if work is None and dst is not None and dist.get_rank() != dst:
            tensor.copy_(own)
        return work

    return wrapped


def _counted(kind, function):
    """FSDP sends sums in the backward pass; DDP does so elsewhere."""
    arguments = inspect.signature(function).bind

    def note(*args, **kwargs):
        if _is_backward():
            group = arguments(*args, **kwargs).arguments.get("group")
            ranks = ", ".join(map(str, dist.get_process_group_ranks(group)))
            _within[f"{kind} among ranks {ranks}"] += 1

    return before(function, note)


def _is_backward():
    return getattr(recorder.running, "watched", False) and not passes.calls.running


def _note_pending():
    for _, where in _pending.values():
        recorder.fact("unawaited", where=where)


@recorder.guarded
def _note_wanted(*_, rank=-1, world_size=-1, **__):
    """torch reads from the environment what is not passed."""
    passed = {"rank": rank, "world_size": world_size}
    found = {name: os.environ.get(name.upper()) if n < 0 else n for name, n in passed.items()}
    recorder.fact("wanted", **{name: n and int(n) for name, n in found.items()})


def _watched(call):
    @functools.wraps(call)
    def wrapped(module, *args, **kwargs):
        global _random
        if recorder.compiling() or passes.calls.running:
            return call(module, *args, **kwargs)
        if _is_backward():
            _within["layers"] += sum(not [*part.children()] for part in module.modules())
            _moments.add(sum(p.grad is not None for p in passes.model.parameters()))
        _random = torch.get_rng_state()
        output = call(module, *args, **kwargs)
        _note_batch(module, args, kwargs, output)
        return output

    return wrapped


@recorder.guarded
def _note_batch(module, args, kwargs, output):
    """Record a model's input. A loss module has no parameters and does not count. Nor does a model
    whose input is another model's output."""
    global _trained
    inputs = tensors_in([*args, *kwargs.values()])
    learns = next(module.parameters(), None) is not None
    if not learns or not inputs or inputs[0].ndim < 2 or inputs[0].requires_grad:
        return
    rows = inputs[0].detach().cpu().to(torch.float32).flatten(1)
    known, targets = _known_samples()
    found = [known.get(row.tobytes(), -1) for row in rows.contiguous().numpy()]
    learning, kind, loss = torch.is_grad_enabled(), type(module).__name__, None
    _trained += learning * len(found)
    if learning and -1 not in found:
        wanted = targets[found].to(output.device)
        loss = float(F.mse_loss(output.detach(), wanted))  # whatever the script makes of it
        _expect(passes.bare(module), args, kwargs, wanted)
    recorder.fact("batch", samples=found, through=kind, grad=learning, loss=loss)


def _expect(bare, args, kwargs, targets):
    """Add up the gradients of the mean squared error, computed apart from the script's graph."""
    if isinstance(bare, DataParallel):
        bare = bare.module  # torch.func refuses the wrapper
    if sum(p.numel() for p in bare.parameters()) > FEW:
        return
    learned = {name: p for name, p in bare.named_parameters() if p.requires_grad}
    copies = {name: p.detach().requires_grad_() for name, p in learned.items()}
    buffers = {name: buffer.clone() for name, buffer in bare.named_buffers()}
    with torch.random.fork_rng(), passes.unnoticed():
        torch.set_rng_state(_random)  # for the same dropout
        output = torch.func.functional_call(bare, copies | buffers, args, kwargs)
    loss = F.mse_loss(output, targets)
    gradients = torch.autograd.grad(loss, list(copies.values()), materialize_grads=True)
    _sizes.append(len(targets))
    for p, gradient in zip(learned.values(), gradients, strict=True):
        _expected[p] = _expected.get(p, 0) + len(targets) * gradient


@functools.cache
def _known_samples():
    """The index of each sample, keyed by its bytes; and the targets."""
    utils = Path(__file__).parents[2] / "utils.py"  # ours: the learner may have changed theirs
    dataset = runpy.run_path(str(utils))["MyTrainDataset"]()
    rows = dataset.features.numpy()
    return {row.tobytes(): index for index, row in enumerate(rows)}, dataset.targets


def _before_step(optimizer, args, kwargs):
    if optimizer is optimizers.stepping:
        _fail_if_asked()
        _note_gradient(optimizer)
        _note_kept(optimizer)


def _fail_if_asked():
    due = _fault and recorder.attempt() == 0 and _trained >= _fault["samples"]
    if due and dist.is_initialized() and dist.get_rank() == _fault["rank"]:
        _fault.clear()
        time.sleep(1)  # until a thread of another rank has saved
        recorder.fact("fault")
        raise RuntimeError("the workshop caused this failure, to see what follows")


@recorder.guarded
def _note_gradient(optimizer):
    parameters = optimizers.parameters_of(optimizer)
    if _expected:
        used = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        expected = None
        if any(p in _expected for p in parameters):
            sums = [_expected.get(p, torch.zeros_like(p)) for p in parameters]
            expected = [number / sum(_sizes) for number in _numbers(sums)]
        fields = {"expected": expected, "used": _numbers(used), "weights": _numbers(parameters)}
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        recorder.fact("gradient", batches=[*_sizes], rates=rates, **fields)
    _expected.clear()
    _sizes.clear()


@recorder.guarded
def _note_kept(optimizer):
    own = [*passes.model.parameters(), *optimizers.parameters_of(optimizer)]
    found = {"weights": own, "gradients": [p.grad for p in own if p.grad is not None]}
    found["state"] = optimizers.state_of(optimizer)
    kept = {kind: _in_memory(tensors) for kind, tensors in found.items()}
    again = _within.pop("layers", 0)
    recorder.fact("kept", **kept, again=again, moments=len(_moments), sums={**_within})
    _within.clear()
    _moments.clear()


def _in_memory(tensors):
    """How many numbers these tensors have in memory, where several may be views of one."""
    parts = [local(tensor.detach()) for tensor in tensors]
    storages = {p.untyped_storage().data_ptr(): p for p in parts}
    return sum(p.untyped_storage().nbytes() // p.element_size() for p in storages.values())


def _numbers(tensors):
    return [number for tensor in tensors for number in tensor.flatten().tolist()]

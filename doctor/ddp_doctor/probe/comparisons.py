"""Sketch what one process and several must have in common: outputs, losses and gradients.

A sketch of a tensor is some sums of its numbers with random signs. It is linear, so that those of
the ranks add up, and about as long as the tensor: enough to see how far two are apart.
"""

import _ddp_doctor as recorder
import torch
from _ddp_doctor import optimizers, passes, precision
from _ddp_doctor.fingerprints import local, part, region, tensors_in
from torch.compiler import is_dynamo_compiling
from torch.nn.modules.batchnorm import _BatchNorm

NUMBERS = 8  # of a sketch
AWAY = 1e-5  # how far the weights begin from their own: a hundred times as far as rounding

_outputs = {}  # of this step, by the id of a module: rows, the shape of one, and a sketch
_losses = []  # of the backward passes of this step
_unclipped = {}  # by the id of a parameter: the sketch of its gradient, if this step has clipped


def watch():
    torch.nn.modules.module.register_module_forward_hook(_after_module)
    recorder.watch(torch.autograd, "backward", _note_loss, hides=False)
    precision.watch_clipping(_note_unclipped, hides=False)


def dense(gradient):
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


@recorder.guarded
def perturb(parameters):
    """Move each weight a little. How far gradients then move is no defect."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in map(local, parameters):
            signs = torch.randint(2, parameter.shape, generator=generator) * 2 - 1
            away = max(AWAY, torch.finfo(parameter.dtype).eps)
            parameter.mul_((1 + away * signs.double()).to(parameter))


def _sketch(tensor, shape=None, bounds=()):
    """With `bounds`, of a part of a tensor with this shape."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(2 * NUMBERS, shape or tensor.shape, generator=generator)
    drawn = part(drawn, bounds).flatten()
    signed = tensor.detach().double().flatten().cpu() * (drawn % 2 * 2 - 1)
    return torch.zeros(NUMBERS).double().index_add_(0, drawn // 2, signed).tolist()


def _after_module(module, args, output):
    if not is_dynamo_compiling() and torch.is_grad_enabled():
        _note_output(module, output)


@recorder.guarded
def _note_output(module, output):
    """Of the sum over all rows, which is the same however they are divided."""
    tensor = next(iter(tensors_in([output])), None)
    if tensor is None or tensor.ndim < 2 or not tensor.is_floating_point():
        return
    if not hasattr(tensor, "to_local"):
        key, shape = id(module), [*tensor.shape[1:]]
        rows, known, sketch = _outputs.get(key, (0, shape, [0] * NUMBERS))
        if shape == known:
            added = _sketch(tensor.detach().double().sum(0))
            both = [a + b for a, b in zip(sketch, added, strict=True)]
            _outputs[key] = rows + len(tensor), shape, both


@recorder.guarded
def _note_loss(tensors, *_, **__):
    found = tensors_in([tensors])
    alone = len(found) == 1 and found[0].numel() == 1
    _losses.append(float(found[0].detach()) if alone else None)


@recorder.guarded
def _note_unclipped(*_, **__):
    """Not of its argument: to look into a generator would empty it."""
    found = [p for p in passes.model.parameters() if p.grad is not None]
    for parameter, sketch in zip(found, _of_gradients(found)[1], strict=True):
        _unclipped.setdefault(id(parameter), sketch)


def _of_gradients(parameters):
    """Whether they are parts, and the sketches of this rank's share."""
    gradients = [parameter.grad.detach() for parameter in parameters]
    parts, sketches = any(map(region, gradients)), []
    for gradient in gradients:
        own = dense(local(gradient)) * (not parts or _is_first(gradient))
        sketches.append(_sketch(own, gradient.shape, region(gradient)))
    return parts, sketches


def _is_first(gradient):
    """Whether this rank is the first of those that hold this part."""
    if not region(gradient):
        return torch.distributed.get_rank() == 0
    places = zip(gradient.device_mesh.get_coordinate(), gradient.placements, strict=True)
    return all(place == 0 or kind.is_shard() for place, kind in places)


@recorder.guarded
def note_gradients(optimizer):
    known = {id(p): name for name, p in passes.model.named_parameters()}
    found = [p for p in optimizers.parameters_of(optimizer) if p.grad is not None]
    parts, sketches = _of_gradients(found)
    modules = {id(module): name for name, module in passes.model.named_modules()}
    outputs = {modules[key]: value for key, value in _outputs.items() if key in modules}
    recorder.fact(
        "projected", parts=parts, projections=sketches, where=recorder.where(),
        names=[known.get(id(p)) or f"parameter {number}" for number, p in enumerate(found)],
        unclipped=[_unclipped.get(id(p), own) for p, own in zip(found, sketches, strict=True)],
        outputs=outputs, losses=[*_losses],
        batch_norm=any(isinstance(m, _BatchNorm) and m.training for m in passes.model.modules()),
    )  # fmt: skip
    for kept in (_outputs, _losses, _unclipped):
        kept.clear()

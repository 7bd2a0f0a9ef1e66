"""Put the CPU in the place of CUDA devices, in the arguments of torch's functions."""

import functools
import operator

import _ddp_doctor as recorder
import torch
from _ddp_doctor.places import is_on_gpu
from torch.overrides import TorchFunctionMode

HALVES = "autocast float16 → bfloat16"

_said = set()


def say(what):
    """Record a kind of change, once."""
    if not recorder.compiling() and what not in _said:
        _said.add(what)
        recorder.fact("mapped", what=what)


def on_cpu(device, numbers=False):
    """The CPU if `device` is a CUDA device, or its index, with `numbers`; else it is unchanged."""
    name = device.type if isinstance(device, torch.device) else device
    if isinstance(name, str) and name.partition(":")[0] == "cuda":
        say("device cuda → cpu")
        return torch.device("cpu") if isinstance(device, torch.device) else "cpu"
    if numbers and type(device) is int:
        say("device cuda → cpu")
        return "cpu"
    return device


class OnCpu(TorchFunctionMode):
    """Changes the arguments of every torch function that is called from Python in this thread."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if not kwargs and function not in CHANGED:  # most calls
            return function(*args)
        kwargs, device = _without_cuda(kwargs or {}), (kwargs or {}).get("device")
        if function is torch.Tensor.to:
            mapped = [on_cpu(value, numbers=True) for value in args[1:]]
            given = [*args[1:], device]
            moves = "device" in kwargs or any(map(operator.is_not, mapped, args[1:]))
            args = [_without_gaps(args[0]) if moves else args[0], *mapped]
            if is_on_gpu(args[0]) and any(str(one) == "cpu" for one in given):
                args[0] = args[0].clone()
        elif function is torch.Tensor.cpu:
            return args[0].clone() if is_on_gpu(args[0]) else function(*args, **kwargs)
        elif function is torch.Tensor.cuda:
            say("device cuda → cpu")
            return _without_gaps(args[0])
        elif function is torch.Tensor.pin_memory:
            say("pin_memory ignored")
            return args[0]
        elif function is torch.Tensor.record_stream:
            return None
        elif function is torch.device and args and type(args[0]) is int:
            args = ["cuda", args[0]]  # an index alone is an error without a GPU
        elif function is torch.Tensor.numpy and HALVES in _said:
            args = [_in_float16(args[0]), *args[1:]]
        elif function in JOINS and args and torch.is_autocast_enabled("cpu"):
            args = [[*map(_in_bfloat16, args[0])], *args[1:]]
        return function(*args, **kwargs)


def _without_gaps(tensor):
    """A part of another tensor as a copy on a GPU would be: `view` refuses one with gaps."""
    if recorder.compiling() or tensor.layout is not torch.strided or tensor.is_contiguous():
        return tensor
    copy = torch.empty_like(tensor, device="meta")
    return tensor if copy.stride() == tensor.stride() else tensor.clone()


# In an autocast to bfloat16, which replaces one to float16, they refuse a tensor of float16.
JOINS = {torch.cat, torch.concat, torch.concatenate, torch.stack}


def _in_float16(tensor):
    """An array cannot have bfloat16, but on a GPU this would be float16."""
    return tensor.to(torch.float16) if tensor.dtype == torch.bfloat16 else tensor


def _in_bfloat16(tensor):
    half = isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float16
    return tensor.to(torch.bfloat16) if half else tensor


CHANGED = {
    *JOINS,
    torch.Tensor.cpu,
    torch.Tensor.cuda,
    torch.Tensor.numpy,
    torch.Tensor.pin_memory,
    torch.Tensor.record_stream,
    torch.Tensor.to,
    torch.device,
}


def _without_cuda(kwargs):
    if "device" in kwargs:
        kwargs = {**kwargs, "device": on_cpu(kwargs["device"], numbers=True)}
    if kwargs.get("pin_memory"):
        say("pin_memory ignored")
        kwargs = {**kwargs, "pin_memory": False}
    return kwargs


def in_mode(function):
    """`function`, called in the mode: a new thread has none, and a function that torch calls from
    inside a changed one, such as a hook in `backward`, would run without it."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with OnCpu():
            return function(*args, **kwargs)

    return wrapped


def without_cuda(function, numbers=False):
    """`function` with the CPU in place of CUDA devices; for those that the mode does not see."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        kwargs = {name: on_cpu(value, numbers) for name, value in kwargs.items()}
        return function(*(on_cpu(value, numbers) for value in args), **kwargs)

    return wrapped


def replacing(owner, name, *others):
    """A decorator: the function takes the place of `owner.name`, and gets that one first."""
    original = getattr(owner, name)

    def put(function):
        @functools.wraps(original)
        def wrapped(*args, **kwargs):
            return function(original, *args, **kwargs)

        for module in (owner, *others):
            if hasattr(module, name):
                setattr(module, name, wrapped)

    return put


class _GeneratorType(type(torch.Generator)):
    def __instancecheck__(cls, instance):
        return isinstance(instance, torch._C.Generator)

    def __call__(cls, device="cpu"):
        return torch._C.Generator(on_cpu(device))


class Generator(torch._C.Generator, metaclass=_GeneratorType):
    """Makes torch's own generators. The mode does not see them, and their type is immutable."""

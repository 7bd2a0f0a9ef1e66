"""Makes training in fp32 faster on a CPU. Optional: without it, results are the same to rounding.

`main.py` calls `apply`. To remove it, delete this file and the two lines there that name it.

`apply` monkeypatches `torch.nn.functional.gelu` and, if oneDNN is to multiply, `.linear` in this
process. `nn.Linear` and `model.py` look both up there at every call, so the model stays plain
GPT-2, and you can read it without knowing CPUs. Calls that are not in fp32 on a CPU, or that run
under autocast or the compiler, still go to torch's own functions.
"""

import ctypes
import math
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

from guard import UserError

_torch_linear, _torch_gelu = F.linear, F.gelu


def apply(args, gpu):
    """Speed up a run with these options. Every rank calls it before `init_process_group`.

    Returns the `Products` from which this run chooses. Returns None if there is a GPU, or if the
    run is compiled. Raises UserError.
    """
    if gpu is not None:
        return None
    _keep_freed()
    if args.compile:
        return None
    F.gelu = gelu
    return Products(args)


class Products:
    """Which library multiplies matrices: "torch", which uses MKL on x86, or "onednn".

    PyTorch's MKL uses AVX-512 on Intel's processors only. On an AMD EPYC with full-width AVX-512
    oneDNN multiplies 2.4 times as fast (768 rows, 128 inputs, 512 outputs). But a call of oneDNN
    takes 15 µs longer, and backward needs transposed copies, so elsewhere MKL can be faster. The
    processor's name does not predict it: rank 0 measures, and takes oneDNN if it saves a tenth.

    Their results differ in the last bits. All ranks must use the same one, and so must a resumed
    run: `checkpoints.py` stores the choice.
    """

    def __init__(self, args):
        self.args = args
        _check(args.products)

    def choose(self, shape, stored=None):
        """The library for a model of this shape; `stored` is the one that the checkpoint names."""
        if self.args.products != "auto":
            return self.args.products
        if stored:
            return stored
        if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
            return "torch"  # this build has only one
        rows, total = _rows(self.args, shape), {"torch": 0.0, "onednn": 0.0}
        for inputs, outputs, count in _sizes(shape):
            least = dict.fromkeys(total, math.inf)
            for _ in range(4):  # in turns, several times, because the first call is slow
                for library in total:
                    took = seconds(library, inputs, outputs, rows)
                    least[library] = min(least[library], took)
            for library in total:
                total[library] += count * least[library]
        return "onednn" if total["onednn"] < 0.9 * total["torch"] else "torch"

    def use(self, library):
        """Multiply with this library from now on. Raises UserError if torch lacks it."""
        _check(library)
        F.linear = linear if library == "onednn" else _torch_linear


def _check(library):
    if library == "onednn" and not torch.backends.mkldnn.is_available():
        raise UserError("this torch has no oneDNN: pass --products torch")


def _rows(args, shape):
    """Rows of the products: tokens of a micro-batch, or fewer if measuring them would take long."""
    world_size = dist.get_world_size()
    sequences = args.batch_size // world_size // args.accumulation(world_size)
    weights = sum(inputs * outputs for inputs, outputs, _ in _sizes(shape))
    operations = 1e9  # 15 ms or less on one core
    return min(sequences * shape.block_size, max(32, int(operations / (6 * weights))))


def _sizes(shape):
    """Inputs, outputs and number of the linear layers of each size."""
    width, vocab = shape.n_embd, min(shape.vocab_size, 4096)  # scale a large one up from a part
    layer = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    return [(*size, shape.n_layer) for size in layer] + [(width, vocab, shape.vocab_size / vocab)]


def seconds(library, inputs, outputs, rows):
    """Time a linear layer's products, forward and backward."""
    function = linear if library == "onednn" else _torch_linear
    x, weight, bias = (
        torch.ones(size, requires_grad=True)
        for size in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    above = torch.ones(rows, outputs)
    start = time.thread_time()  # excludes the time that other programs use the core
    function(x, weight, bias).backward(above)
    return time.thread_time() - start


def _fits(x):
    return (
        x.is_cpu and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
    )  # fmt: skip


def linear(x, weight, bias=None):
    """`F.linear` by oneDNN."""
    if _fits(x) and x.dim() > 1:
        return _Linear.apply(x, weight, bias)
    return _torch_linear(x, weight, bias)


def _product(a, b, bias=None):
    """a bᵀ + bias: a [..., k], b [n, k] and bias [n] give [..., n]."""
    # Not a public operator, but the only one that calls oneDNN without copies.
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, bias):
        context.save_for_backward(x, weight)
        return _product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context, grad):
        x, weight = context.saved_tensors
        rows, grads = x.flatten(0, -2), grad.flatten(0, -2)
        # oneDNN copies a transposed first factor, so the smaller one comes first.
        if x.size(-1) < grad.size(-1):
            weight_grad = _product(rows.t(), grads.t()).t()
        else:
            weight_grad = _product(grads.t(), rows.t())
        bias_grad = grads.sum(0) if context.needs_input_grad[2] else None
        return _product(grad, weight.t()), weight_grad, bias_grad


_SLOPE = 2 * math.sqrt(2 / math.pi)
_SLOPE_TENSOR = torch.tensor(_SLOPE)  # addcmul takes no number as first argument


def gelu(x, approximate="none"):
    """`F.gelu`. Its tanh form equals x σ(z), where z is twice the argument of tanh.

    PyTorch's tanh is slow: forward and backward of 768 × 512 values take 0.62 ms on two cores. This
    takes 0.33 ms.
    """
    if approximate == "tanh" and _fits(x):
        return _GELU.apply(x)
    return _torch_gelu(x, approximate=approximate)


class _GELU(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        z = torch.addcmul(_SLOPE_TENSOR, x, x, value=0.044715 * _SLOPE).mul_(x)
        sigmoid = z.sigmoid()
        if context.needs_input_grad[0]:
            slope = z.sub_(x, alpha=2 / 3 * _SLOPE)  # times 3 it is x dz/dx
            slope.addcmul_(slope, sigmoid, value=-1)
            # Save only the derivative, because memory traffic costs more than arithmetic.
            context.save_for_backward(torch.addcmul(sigmoid, sigmoid, slope, value=3, out=slope))
        return sigmoid.mul_(x)

    @staticmethod
    @once_differentiable
    def backward(context, grad):
        (slope,) = context.saved_tensors
        return slope.mul_(grad)  # in place, so autograd refuses a second backward


def _keep_freed():
    """Let malloc keep up to 1 GB that a step frees, for the next step.

    By default glibc returns it to the OS, and the next step must fault its pages in again. This
    takes up to a tenth of a small model's time. Other C libraries have no such setting.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        trim_threshold, mmap_threshold = -1, -3  # of malloc.h
        mallopt(mmap_threshold, 32 << 20)  # the most that glibc takes
        mallopt(trim_threshold, 1 << 30)

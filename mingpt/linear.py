"""Linear layers that are fast on every CPU."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


class Linear(nn.Linear):
    """nn.Linear. On a CPU, in fp32, its products are oneDNN's, in forward and backward.

    PyTorch has MKL compute these. Out of a core that is not Intel's (AMD EPYC) MKL gets 94 GFLOP/s,
    oneDNN 224, for 768 rows, 128 inputs and 512 outputs. `torch.backends.mkldnn.enabled` turns it
    off. Whatever runs under autocast or is compiled goes where nn.Linear sends it.
    """

    def forward(self, x):
        if (
            not torch.compiler.is_compiling()  # first: what follows, the compiler cannot trace
            and x.is_cpu and x.dtype == torch.float32
            and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
            and not torch.is_autocast_enabled("cpu")
        ):  # fmt: skip
            return _Linear.apply(x, self.weight, self.bias)
        return super().forward(x)


def product(a, b, bias=None):
    """a bᵀ + bias by oneDNN, of fp32 on a CPU: a [..., k], b [n, k] and bias [n] to [..., n]."""
    # The one way to it without copies, and not a public one. The compiler refuses it.
    return torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, bias):
        context.save_for_backward(x, weight)
        return product(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(context, grad):
        x, weight = context.saved_tensors
        rows, grads = x.flatten(0, -2), grad.flatten(0, -2)
        # Of a transposed first factor a copy is made, so the smaller one comes first.
        if x.size(-1) < grad.size(-1):
            of_weight = product(rows.t(), grads.t()).t()
        else:
            of_weight = product(grads.t(), rows.t())
        of_bias = grads.sum(0) if context.needs_input_grad[2] else None
        return product(grad, weight.t()), of_weight, of_bias

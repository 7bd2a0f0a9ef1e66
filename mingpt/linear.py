"""Linear layers that are fast on every CPU."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable


def mkl_may_be_slow():
    """Whether products in fp32 are MKL's, and the processor is not Intel's."""
    known = getattr(torch.cpu, "get_capabilities", dict)  # torch 2.8 cannot tell
    return torch.backends.mkl.is_available() and "Intel" not in known().get("cpu_name", "Intel")


class Linear(nn.Linear):
    """nn.Linear. On a CPU, in fp32, its products are oneDNN's, in forward and backward, where
    `Linear.onednn` says so: by default where MKL may be slow.

    PyTorch's MKL uses AVX-512 on Intel's only. For 768 rows, 128 inputs and 512 outputs it gets 94
    GFLOP/s out of a core of AMD's whose AVX-512 has its full width, oneDNN 224; of half the width
    (Zen 4), 100 and 108; out of Intel's both get 110. But a call of oneDNN's takes 13 to 15 µs
    more, and backward needs transposed copies: on Zen 4 a whole run by MKL is 2 to 3 % shorter.
    Which of AMD's it is, a virtual machine need not say. Whatever runs under autocast or is
    compiled goes where nn.Linear sends it.
    """

    onednn = torch.backends.mkldnn.is_available() and mkl_may_be_slow()

    def forward(self, x):
        if (
            self.onednn and x.is_cpu and x.dtype == torch.float32
            and not torch.compiler.is_compiling()  # it refuses oneDNN's product
            and not torch.is_autocast_enabled("cpu")
        ):  # fmt: skip
            return _Linear.apply(x, self.weight, self.bias)
        return super().forward(x)


def product(a, b, bias=None):
    """a bᵀ + bias by oneDNN, of fp32 on a CPU: a [..., k], b [n, k] and bias [n] to [..., n]."""
    # The one way to it without copies, and not a public one.
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

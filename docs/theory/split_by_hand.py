"""Compute two layers of which each process has a half, and send one tensor.

    torchrun --standalone --nproc_per_node=2 docs/theory/split_by_hand.py

Shoeybi et al., 2019 (arXiv 1909.08053) call `Enter` f, and `Leave` g.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

WIDTH, HIDDEN = 64, 256
NAMES = "x", "columns of A", "rows of B"


class Enter(torch.autograd.Function):
    """The same input on all ranks. Its gradient is the sum of their parts."""

    @staticmethod
    def forward(context, x):
        return x

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Leave(torch.autograd.Function):
    """The sum of the ranks' parts. Each part has the gradient of the sum."""

    @staticmethod
    def forward(context, part):
        part = part.clone()
        dist.all_reduce(part)
        return part

    @staticmethod
    def backward(context, gradient):
        return gradient


def whole(x, a, b):
    return F.gelu(x @ a) @ b


def split(x, a, b):
    """`a` has this rank's columns, and `b` its rows."""
    return Leave.apply(F.gelu(Enter.apply(x) @ a) @ b)


def gradients(function, *tensors):
    """The output; the gradients of its squares are in the tensors."""
    output = function(*(tensor.requires_grad_() for tensor in tensors))
    output.square().sum().backward()
    return output


def distance(a, b):
    return (a - b).abs().max().item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same numbers on all ranks
    x = torch.randn(8, WIDTH)
    a, b = torch.randn(WIDTH, HIDDEN) / 8, torch.randn(HIDDEN, WIDTH) / 16

    def own(x, a, b):
        parts = x, a.chunk(size, dim=1)[rank], b.chunk(size, dim=0)[rank]
        return [part.clone() for part in parts]

    inputs = own(x, a, b)
    output = gradients(whole, x, a, b)
    parts = gradients(split, *inputs)
    if rank == 0:
        held = inputs[1].numel() + inputs[2].numel()
        print(f"each rank has {held} of {a.numel() + b.numel()} weights")
        print(f"output: {distance(parts, output):.0e} from the whole's")
        due = own(x.grad, a.grad, b.grad)
        for name, one, other in zip(NAMES, inputs, due, strict=True):
            print(f"gradient of {name}: {distance(one.grad, other):.0e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

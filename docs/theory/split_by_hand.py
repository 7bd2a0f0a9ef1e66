"""Compute two layers of which each process has a half, and send one tensor.

    torchrun --standalone --nproc_per_node=2 docs/theory/split_by_hand.py

Shoeybi et al., 2019 (arXiv 1909.08053) call `Enter` f, and `Leave` g.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

WIDTH, HIDDEN = 64, 256


class Enter(torch.autograd.Function):
    """The same input on all ranks. Its gradient is the sum of the ranks' parts."""

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


def distance(a, b):
    return (a - b).abs().max().item()


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same numbers on all ranks
    x, a, b = torch.randn(8, WIDTH), torch.randn(WIDTH, HIDDEN) / 8, torch.randn(HIDDEN, WIDTH) / 16
    tensors = [one.requires_grad_() for one in (x, a, b)]
    output = whole(*tensors)
    output.square().sum().backward()
    gradients = [x.grad, a.grad.chunk(size, dim=1)[rank], b.grad.chunk(size, dim=0)[rank]]

    own = [x, a.chunk(size, dim=1)[rank], b.chunk(size, dim=0)[rank]]
    own = [one.detach().clone().requires_grad_() for one in own]
    parts = split(*own)
    parts.square().sum().backward()
    if rank == 0:
        print(f"each rank has {own[1].numel() + own[2].numel()} of {a.numel() + b.numel()} weights")
        print(f"output: {distance(parts, output):.0e} from that of whole layers")
        for name, mine, due in zip(("x", "columns of A", "rows of B"), own, gradients, strict=True):
            print(f"gradient of {name}: {distance(mine.grad, due):.0e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Attention over sequences of which each process has a slice, in three ways.

    python docs/theory/attention_in_slices.py

Runs four CPU processes over gloo, with or without GPUs. NPROC=2 starts two.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.nn.functional import all_gather
from torch.nn.attention.bias import causal_lower_right

sys.path.insert(0, str(Path(__file__).parents[2]))
from parallel.context_parallel import AllGather

WORLD_SIZE = int(os.environ.get("NPROC", 4))
SHAPE = 2, 8, 256, 16  # batch, head, time, size


def gather(query, key, value):
    """Every rank gets all keys and values."""
    end = (dist.get_rank() + 1) * query.size(2)
    key, value = AllGather.apply(torch.stack((key, value)))[:, :, :, :end]
    mask = causal_lower_right(query.size(2), end)
    return F.scaled_dot_product_attention(query, key, value, mask)


class Pass(torch.autograd.Function):
    """Give to the next rank, take from the one before; gradients return."""

    @staticmethod
    def forward(context, own):
        return Pass.exchange(own, 1)

    @staticmethod
    def backward(context, gradient):
        return Pass.exchange(gradient.contiguous(), -1)

    @staticmethod
    def exchange(own, by):
        rank, size = dist.get_rank(), dist.get_world_size()
        other = torch.empty_like(own)
        # isend does not block, so every rank reaches its recv.
        sending = dist.isend(own, (rank + by) % size)
        dist.recv(other, (rank - by) % size)
        sending.wait()
        return other


def ring(query, key, value):
    """Keys and values travel around; a rank has one slice of them at a time."""
    pair, scale = torch.stack((key, value)), query.size(-1) ** -0.5
    largest = torch.full_like(query[..., :1], -torch.inf)  # score so far
    total, output = torch.zeros_like(largest), torch.zeros_like(query)
    for step in range(dist.get_world_size()):
        source = (dist.get_rank() - step) % dist.get_world_size()
        scores = query @ pair[0].transpose(2, 3) * scale
        ahead = (dist.get_rank() - source) * query.size(2)
        later = torch.ones_like(scores).triu(ahead + 1).bool()
        scores = scores.masked_fill(later, -torch.inf)
        new = torch.maximum(largest, scores.amax(-1, keepdim=True)).detach()
        weights, shrink = torch.exp(scores - new), torch.exp(largest - new)
        total = total * shrink + weights.sum(-1, keepdim=True)
        output = output * shrink + weights @ pair[1]
        largest = new
        if step + 1 < dist.get_world_size():
            pair = Pass.apply(pair)
    return output / total


class AllToAll(torch.autograd.Function):
    """Cut along one dimension, a part per rank; join along another."""

    @staticmethod
    def forward(context, own, cut, join):
        context.back = join, cut
        parts = torch.stack(own.chunk(dist.get_world_size(), cut))
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts)
        return torch.cat([*received], join)

    @staticmethod
    def backward(context, gradient):
        return AllToAll.apply(gradient, *context.back), None, None


def ulysses(query, key, value):
    """Slices of all heads become some heads of the whole sequence, and back."""
    some_heads = AllToAll.apply(torch.stack((query, key, value)), 2, 3)
    output = F.scaled_dot_product_attention(*some_heads, is_causal=True)
    return AllToAll.apply(output, 2, 1)


def wrong(query, key, value):
    """As `gather`, but gloo's gradients of this all-gather are wrong."""
    with warnings.catch_warnings(action="ignore"):  # torch 2.13 deprecates it
        key, value = (
            torch.cat(all_gather(part), dim=2) for part in (key, value))
    begin = dist.get_rank() * query.size(2)
    mask = query.new_ones(query.size(2), key.size(2)).tril(begin).bool()
    return F.scaled_dot_product_attention(query, key, value, mask)


def whole(query, key, value):
    """For comparison: one process has the sequence."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def run(way, parts):
    """The output and the gradients of `parts`, and how many numbers autograd
    keeps between forward and backward.
    """
    parts, kept = [part.clone().requires_grad_() for part in parts], {}

    def keep(tensor):
        if tensor.is_floating_point():
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes() // tensor.itemsize
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = way(*parts)
    count = sum(kept.values())
    output.square().sum().backward()
    return [output, *(part.grad for part in parts)], count


def errors(way, parts):
    """How far off this rank's output and gradients are, at most, as shares of
    the largest number in them. `parts` are those of the whole sequence.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    expected, _ = run(whole, parts)
    found, _ = run(way, [part.chunk(size, dim=2)[rank] for part in parts])
    shares = [
        (one - other.chunk(size, dim=2)[rank]).abs().max() / other.abs().max()
        for one, other in zip(found, expected, strict=True)]
    return shares[0].item(), max(shares[1:]).item()


WAYS = gather, ring, ulysses, wrong


def worker(rank, port, results):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD_SIZE)
    parts = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(0))
    own = [part.chunk(WORLD_SIZE, dim=2)[rank] for part in parts]
    for result, way in zip(results, WAYS, strict=True):
        result[rank] = torch.tensor([*errors(way, parts), run(way, own)[1]])
    dist.barrier()  # wait until every rank is done
    dist.destroy_process_group()


if __name__ == "__main__":
    results = torch.zeros(len(WAYS), WORLD_SIZE, 3).share_memory_()
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
    mp.spawn(worker, args=(store.port, results), nprocs=WORLD_SIZE)
    count = run(whole, torch.randn(3, *SHAPE))[1]
    print(f"whole    keeps {count:9,} numbers")
    for way, result in zip(WAYS, results, strict=True):
        output, gradient, count = result.amax(0).tolist()
        print(
            f"{way.__name__:8} keeps {count:9,.0f} numbers, output off by "
            f"{output:.0e}, gradients by {gradient:.0e}")
        if way is not wrong and max(output, gradient) > 1e-5:
            sys.exit(f"FAILED: {way.__name__}")

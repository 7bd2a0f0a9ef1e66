"""Fingerprints of tensors, and the tensors in what a script passes around."""

import zlib

import torch
from torch.utils._pytree import tree_leaves

MOST = 4096  # numbers of a tensor in its fingerprint, evenly spaced


def fingerprint(tensor):
    """A checksum of a tensor's bits; of a sharded one, of this rank's part."""
    bits = some(local(tensor.detach())).cpu().contiguous().view(torch.uint8)
    return f"{zlib.crc32(memoryview(bits.numpy())):08x}"


def rounded(tensors):
    """The fingerprints of the tensors as halves, of each kind, sorted."""
    for kind in (torch.float16, torch.bfloat16):
        yield sorted(fingerprint(tensor.detach().to(kind)) for tensor in tensors)


def some(tensor):
    """All numbers of a tensor, or MOST of them."""
    flat = tensor.reshape(-1)
    return flat[:: max(1, -(-flat.numel() // MOST))]


def local(tensor):
    """This rank's part of a sharded tensor; of a sparse one, its values."""
    tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    return tensor.values() if "sparse" in str(tensor.layout) else tensor


def tensors_in(value):
    """All tensors in nested dicts, lists and tuples, in order."""
    if type(value) in (list, tuple) and all(isinstance(one, torch.Tensor) for one in value):
        return [*value]  # as of most batches; tree_leaves takes ten times as long
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]

"""Fingerprints of tensors, and the tensors in what a script passes around."""

import zlib

import torch
from torch.utils._pytree import tree_leaves

MOST = 4096  # numbers of a tensor in its fingerprint, evenly spaced


def fingerprint(tensor):
    """A checksum of a tensor's bits; of a sharded one, of this rank's part."""
    own = some(local(tensor.detach())).cpu().clone()  # numpy() would forbid to resize the script's
    bits = own.contiguous().view(torch.uint8)
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


def region(tensor):
    """Where this rank's part of a DTensor begins in each dimension, and ends; () for a tensor."""
    if not hasattr(tensor, "device_mesh"):
        return ()
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as locate

    lengths, begins = locate(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple((n, n + length) for n, length in zip(begins, lengths, strict=True))


def part(tensor, bounds):
    """The part of a whole tensor within the bounds that `region` has returned."""
    return tensor[tuple(slice(*pair) for pair in bounds)]


def tensors_in(value):
    """All tensors in nested dicts, lists and tuples, in order."""
    if type(value) in (list, tuple) and all(isinstance(one, torch.Tensor) for one in value):
        return [*value]  # as of most batches; tree_leaves takes ten times as long
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]

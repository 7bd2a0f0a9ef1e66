"""Fingerprints of tensors, and the tensors in what a script passes around."""

import pickle
import zlib

import torch
from torch.utils._pytree import tree_leaves

FLAT = "_fsdp_flattened"  # an attribute of the parameters of FSDP's first version
MOST = 4096  # numbers of a tensor in its fingerprint, evenly spaced


def fingerprint(tensor):
    """A checksum of a tensor's bits; of a sharded one, of this rank's part."""
    own = some(local(tensor.detach())).cpu().clone()  # numpy() would forbid to resize the script's
    bits = own.contiguous().view(torch.uint8)
    return f"{zlib.crc32(memoryview(bits.numpy())):08x}"


def state_of(generator):
    """A checksum of the state of a generator of torch, random or numpy."""
    if hasattr(generator, "bit_generator"):
        state = generator.bit_generator.state
    else:
        state = getattr(generator, "get_state", getattr(generator, "getstate", None))()
    state = state.numpy() if isinstance(state, torch.Tensor) else state
    return zlib.crc32(pickle.dumps(state))


def captured(tensor):
    """Whether a graph of CUDA is captured, so that nothing may wait for the tensor's numbers."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


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


def is_part(parameter):
    """Whether it is one rank's share, as of FSDP: not if all have the whole, as with NO_SHARD. A
    share of one number may be the whole."""
    if hasattr(parameter, "placements"):
        return not all(one.is_replicate() for one in parameter.placements)
    whole = getattr(parameter, "_unpadded_unsharded_size", torch.Size())
    shares = whole.numel() < 2 or whole != getattr(parameter, "_sharded_size", None)
    return hasattr(parameter, FLAT) and shares


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

"""Count the memory of a model's training step in float32 and under autocast in bfloat16.

    python docs/labs/activations.py

Activations are what the forward pass keeps for the backward pass, besides the weights or their
copies.
"""

import torch
from torch.autograd.graph import saved_tensors_hooks

SAMPLES, WIDTH = 4096, 256
kept = {}  # by address, since two operations may keep the same tensor


def keep(tensor):
    kept[tensor.data_ptr()] = tensor
    return tensor


def about(name, tensors):
    size = round(sum(tensor.nbytes for tensor in tensors) / 2**20)
    return f"{name} {size} MB in {str(tensors[0].dtype).removeprefix('torch.')}"


for dtype in (torch.float32, torch.bfloat16):
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)))
    autocast = torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16)
    with saved_tensors_hooks(keep, lambda tensor: tensor), autocast:
        loss = model(torch.randn(SAMPLES, WIDTH)).sum()
    loss.backward()
    weights = [*model.parameters()]
    activations = [one for one in kept.values() if len(one) == SAMPLES]
    others = [one for one in kept.values() if len(one) != SAMPLES and one.dtype != torch.float32]
    parts = [about("activations", activations), about("weights", weights)]
    parts += [about("gradients", [weight.grad for weight in weights])]
    parts += [about("copies of weights", others)] if others else []
    print(", ".join(parts))
    kept.clear()

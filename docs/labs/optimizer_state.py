"""Print how many numbers of AdamW's state each rank holds, with and without ZeRO.

    torchrun --standalone --nproc_per_node=2 docs/labs/optimizer_state.py

The model is a transformer. Its gradients are zeros: only the sizes matter here.
"""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer as ZeRO


def numbers(optimizer):
    optimizer.step()  # the first step creates the state
    tensors = [t for state in optimizer.state.values() for t in state.values()]
    return sum(t.numel() for t in tensors if t.dim() > 0)


model = torch.nn.Transformer(128, dim_feedforward=512, batch_first=True)
weights = list(model.parameters())
for weight in weights:
    weight.grad = torch.zeros_like(weight)
whole = numbers(torch.optim.AdamW(weights))

dist.init_process_group("gloo")
part = numbers(ZeRO(weights, torch.optim.AdamW).optim)
parts = [None] * dist.get_world_size()
dist.all_gather_object(parts, part)
if dist.get_rank() == 0:
    count = sum(weight.numel() for weight in weights)
    print(f"{count:,} weights in {len(weights)} tensors")
    print(f"{whole:,} numbers of optimizer state")
    print("with ZeRO, per rank:", ", ".join(f"{n:,}" for n in parts))
dist.destroy_process_group()

"""Count the memory of a training step of GPT-2, without a GPU and without the memory.

    python -m docs.labs.gpu_memory 1 4 16 64

The step runs on fake tensors, which have shapes and no numbers. A row is one
micro-batch, in sequences of 1,024 tokens. "kept" is what the forward pass keeps
for the backward pass: activations, and copies of the weights in 16 bits.
"""

import sys

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks

from mingpt.model import GPT, GPTConfig

GIB = 2**30


def count(size, dtype):
    """Bytes of the weights, and of what a forward pass of `size` sequences keeps."""
    kept = []
    with FakeTensorMode():
        model = GPT(GPTConfig.preset("gpt2", dropout=0.0))
        tokens = torch.zeros(size, model.config.block_size, dtype=torch.long)
        keep = saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda it: it)
        with keep, torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            model(tokens, tokens)
        weights = {one.untyped_storage()._cdata: one.nbytes for one in model.parameters()}
        others = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in kept}
    least = sum(others[one] for one in others.keys() - weights.keys())
    if dtype == torch.float32:
        return sum(weights.values()), least
    # CUDA's autocast, unlike the CPU's, leaves log_softmax in 16 bits, and converts what it returns
    # for the loss: both are kept.
    return sum(weights.values()), least + 2 * tokens.numel() * model.config.vocab_size


if __name__ == "__main__":
    print("micro-batch | weights | gradients | AdamW | kept in bf16 | kept in fp32, GiB")
    for size in map(int, sys.argv[1:]):
        (weights, half), (_, full) = count(size, torch.bfloat16), count(size, torch.float32)
        state = [weights, weights, 2 * weights]
        row = [f"{number / GIB:.2f}" for number in (*state, half, full)]
        print(f"{size:<11} | {row[0]:>7} | {row[1]:>9} | {row[2]:>5} | {row[3]:>12} | {row[4]:>12}")

"""How much of what the device can do is done: model FLOPs utilization, MFU."""

import time

import torch

from mingpt import linear

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def per_token(model):
    """Floating-point operations that a token costs in training, forward and backward.

    6 N + 12 L H Q T of Chowdhery et al. 2022 (PaLM), appendix B: N parameters without the position
    embeddings, L layers, H heads of size Q, T tokens. Attention counts in full, though causal.
    """
    shape = model.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    matrices = parameters - shape.block_size * shape.n_embd
    return 6 * matrices + 12 * shape.n_layer * shape.n_embd * shape.block_size


def peak(device, precision):
    """Floating-point operations a second of the fastest matrix product measured on `device`.

    A measurement of this process's own share, not a data sheet's figure. Takes about 0.2 s.
    """
    dtype = DTYPES.get(precision, torch.float32)
    size = 512 if device.type == "cpu" else 8192
    generator = torch.Generator(device)  # of its own: dropout draws from the other
    a, b = (
        torch.randn(size, size, generator=generator, device=device, dtype=dtype) for _ in range(2)
    )
    products = [torch.matmul]
    if device.type == "cpu" and dtype == torch.float32 and torch.backends.mkldnn.is_available():
        products.append(linear.product)
    best, end = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < end:
        for product in products:
            _wait(device)
            start = time.perf_counter()
            product(a, b)
            _wait(device)
            best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _wait(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)

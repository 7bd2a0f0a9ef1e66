"""Model FLOPs utilization (MFU): the share of a GPU's theoretical peak that training reaches."""

import torch

# TFLOP/s in half precision (bf16 and fp16), TF32 and fp32: dense, accumulated in fp32. Sources:
# NVIDIA's data sheets and, for GeForce, its architecture whitepapers. Names are those of
# torch.cuda.get_device_name, so that MIG slices, laptop GPUs and other variants do not match.
_V100_SXM2, _V100_PCIE = (125, None, 15.7), (112, None, 14)  # no bf16, so half is fp16
_A100 = (312, 156, 19.5)
PEAKS = {
    "Tesla V100-SXM2-16GB": _V100_SXM2, "Tesla V100-SXM2-32GB": _V100_SXM2,
    "Tesla V100-PCIE-16GB": _V100_PCIE, "Tesla V100-PCIE-32GB": _V100_PCIE,
    "NVIDIA A100-SXM4-40GB": _A100, "NVIDIA A100-SXM4-80GB": _A100,
    "NVIDIA A100-PCIE-40GB": _A100, "NVIDIA A100 80GB PCIe": _A100,
    "NVIDIA H100 80GB HBM3": (989, 494, 67),  # SXM
    "NVIDIA H100 PCIe": (756, 378, 51),
    "NVIDIA H200": (989, 494, 67),
    "NVIDIA B200": (2250, 1125, None),
    "NVIDIA L4": (121, 60, 30.3),
    "NVIDIA L40S": (362, 183, 91.6),
    "NVIDIA GeForce RTX 3090": (71, 35.6, 35.6),
    "NVIDIA GeForce RTX 4090": (165, 82.6, 82.6),
}  # fmt: skip
_COLUMNS = {"bf16": 0, "fp16": 0, "tf32": 1, "fp32": 2}


def per_token(model):
    """Floating-point operations per token in training, forward and backward.

    6 N + 12 L H Q T of Chowdhery et al. 2022 (PaLM), appendix B: N parameters without the position
    embeddings, L layers, H heads of size Q, T tokens. Attention counts in full, though causal.
    """
    shape = model.config
    parameters = sum(parameter.numel() for parameter in model.parameters())
    matrices = parameters - shape.block_size * shape.n_embd
    return 6 * matrices + 12 * shape.n_layer * shape.n_embd * shape.block_size


def peak(device, precision):
    """Theoretical peak of `device` in FLOP/s; None for a CPU, or if the table lacks it."""
    if device.type != "cuda":
        return None
    row = PEAKS.get(torch.cuda.get_device_name(device))
    teraflops = row and row[_COLUMNS[precision]]
    return teraflops and teraflops * 1e12

"""Published runs, beside what the formulas predict for them."""

from dataclasses import replace

from parallel.scale.choose import MODELS, machine
from parallel.scale.costs import Layout, Work, step

H100, A100 = ("h100", 400), ("a100", 200)  # Gbit/s of each one's link
# What was published: layout, work, and the speed per GPU. The first run of a group fits the one
# free number, the rate of computing; those after it are predicted. torchtitan: github.com/pytorch/
# torchtitan, benchmarks/llama3_h100_202412_torchtitan.md. It does not say how often stages are
# interleaved: 2 here. Llama 3: arXiv 2407.21783, table 4; interleaved by 8 here.
# Megatron-LM and MegaScale: arXiv 2402.15627, table 2; the link is not told. llm.c: github.com/
# karpathy/llm.c, scripts/run_gpt2_*.sh, "~300ms", "~820ms" and "~1.7s" for 524,288 tokens.
PUBLISHED = [
    (H100, "tokens/s", [
        ("8B, FSDP 8", "llama3-8b", (1, 1, 8), (16, 8192, 2), 5762),
        ("8B, FSDP 128", "llama3-8b", (1, 1, 128), (256, 8192, 2), 5605),
    ]),
    (H100, "tokens/s", [
        ("8B, compiled, FSDP 8", "llama3-8b", (1, 1, 8), (16, 8192, 2), 6667),
        ("8B, compiled, FSDP 128", "llama3-8b", (1, 1, 128), (256, 8192, 2), 6514),
    ]),
    (H100, "tokens/s", [
        ("8B, float8, FSDP 8", "llama3-8b", (1, 1, 8), (16, 8192, 2), 8532),
        ("8B, float8, FSDP 128", "llama3-8b", (1, 1, 128), (256, 8192, 2), 8380),
        ("405B, 1F1B, 512 GPUs", "llama3-405b", (8, 1, 8, 1, 8), (256, 8192, 1, True), 100),
        ("405B, interleaved", "llama3-405b", (8, 1, 8, 1, 8, 2), (256, 8192, 1, True), 128),
        ("70B, TP 8 × FSDP 32", "llama3-70b", (8, 1, 32), (512, 8192, 16, True), 829),
    ]),
    (H100, "tokens/s", [
        ("8B, 32k tokens", "llama3-8b", (1, 1, 8), (8, 32_768, 1, True), 3890),
        ("8B, 64k tokens, CP 2", "llama3-8b", (1, 2, 4), (4, 65_536, 1, True), 2540),
        ("8B, 128k tokens, CP 4", "llama3-8b", (1, 4, 2), (2, 131_072, 1, True), 1071),
        ("8B, 256k tokens, CP 8", "llama3-8b", (1, 8), (1, 262_144, 1, True), 548),
    ]),
    (H100, "TFLOP/s", [
        ("405B, 8,192 GPUs", "llama3-405b", (8, 1, 64, 1, 16, 8), (2048, 8192), 430),
        ("405B, 16,384 GPUs", "llama3-405b", (8, 1, 128, 1, 16, 8), (2048, 8192), 400),
    ]),
    (A100, "tokens/s", [
        ("175B, Megatron-LM, 3,072 GPUs", "gpt3", (8, 1, 1, 48, 8, 6), (6144, 2048), 141.1),
        ("175B, Megatron-LM, 6,144", "gpt3", (8, 1, 1, 96, 8, 6), (6144, 2048), 138.6),
        ("175B, Megatron-LM, 12,288", "gpt3", (8, 1, 1, 192, 8, 6), (6144, 2048), 119.4),
    ]),
    (A100, "tokens/s", [
        ("175B, MegaScale, 3,072 GPUs", "gpt3", (8, 1, 1, 48, 8, 6), (6144, 2048), 173.1),
        ("175B, MegaScale, 6,144", "gpt3", (8, 1, 1, 96, 8, 6), (6144, 2048), 167.8),
        ("175B, MegaScale, 12,288", "gpt3", (8, 1, 1, 192, 8, 6), (6144, 2048), 161.5),
    ]),
    (A100, "tokens/s", [
        ("GPT-2 124M, llm.c, 8 A100", "gpt2", (1, 1, 1, 8), (512, 1024, 64), 218_000),
        ("GPT-2 350M, llm.c", "gpt2-medium", (1, 1, 1, 8), (512, 1024, 64), 79_900),
        ("GPT-2 774M, llm.c", "gpt2-large", (1, 1, 1, 8), (512, 1024, 32), 38_600),
    ]),
]  # fmt: skip


def speed(model, layout, work, flops, gpu, link):
    on = replace(machine(gpu, 1, link), flops=flops)
    seconds = sum(step(model, layout, work, on).values())
    return work.sequences * work.context / layout.gpus / seconds


def fitted(model, layout, work, target, *where):
    """The rate of computing with which the prediction is the published speed, by bisection."""
    low, high = 1e12, 1e17
    for _ in range(60):
        middle = (low * high) ** 0.5
        slower = speed(model, layout, work, middle, *where) < target
        low, high = (middle, high) if slower else (low, middle)
    return middle


def compared():
    """(what, published, predicted) of each run; None was predicted of the one that fits."""
    for where, measure, group in PUBLISHED:
        flops = None
        for what, name, layout, work, told in group:
            setting = MODELS[name], Layout(*layout), Work(*work)
            unit = MODELS[name].flops(work[1]) / 1e12 if measure == "TFLOP/s" else 1
            ours = unit * speed(*setting, flops, *where) if flops else None
            flops = flops or fitted(*setting, told / unit, *where)
            yield what, told, ours

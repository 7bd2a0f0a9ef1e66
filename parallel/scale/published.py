"""Published runs, beside what the formulas predict for them."""

from parallel.scale.choose import MODELS
from parallel.scale.costs import Layout, Machine, Work, step

# What was published: layout, work, and tokens/s per GPU. The first run of a group fits the one free
# number, the rate of computing; those after it are predicted. torchtitan: github.com/pytorch/
# torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, H100 of 96 GB, a link of 400 Gbit/s each.
# It does not say how often stages are interleaved: 2 here. Llama 3: arXiv 2407.21783, table 4, in
# TFLOP/s; interleaved by 8 here.
PUBLISHED = [
    [
        ("8B, FSDP 8", "8b", (1, 1, 8), (16, 8192, 2), 5762),
        ("8B, FSDP 128", "8b", (1, 1, 128), (256, 8192, 2), 5605),
    ],
    [
        ("8B, compiled, FSDP 8", "8b", (1, 1, 8), (16, 8192, 2), 6667),
        ("8B, compiled, FSDP 128", "8b", (1, 1, 128), (256, 8192, 2), 6514),
    ],
    [
        ("8B, float8, FSDP 8", "8b", (1, 1, 8), (16, 8192, 2), 8532),
        ("8B, float8, FSDP 128", "8b", (1, 1, 128), (256, 8192, 2), 8380),
        ("405B, 1F1B, 512 GPUs", "405b", (8, 1, 8, 1, 8), (256, 8192, 1, True), 100),
        ("405B, interleaved", "405b", (8, 1, 8, 1, 8, 2), (256, 8192, 1, True), 128),
        ("70B, TP 8 × FSDP 32", "70b", (8, 1, 32), (512, 8192, 16, True), 829),
    ],
    [
        ("8B, 32k tokens", "8b", (1, 1, 8), (8, 32_768, 1, True), 3890),
        ("8B, 64k tokens, CP 2", "8b", (1, 2, 4), (4, 65_536, 1, True), 2540),
        ("8B, 128k tokens, CP 4", "8b", (1, 4, 2), (2, 131_072, 1, True), 1071),
        ("8B, 256k tokens, CP 8", "8b", (1, 8), (1, 262_144, 1, True), 548),
    ],
    [
        ("405B, 8,192 GPUs", "405b", (8, 1, 64, 1, 16, 8), (2048, 8192), 430),
        ("405B, 16,384 GPUs", "405b", (8, 1, 128, 1, 16, 8), (2048, 8192), 400),
    ],
]


def speed(model, layout, work, flops):
    on = Machine(96e9, flops, 450e9, 50e9)
    seconds = sum(step(model, layout, work, on).values())
    return work.sequences * work.context / layout.gpus / seconds


def fitted(model, layout, work, target):
    """The rate of computing with which the prediction is the published speed, by bisection."""
    low, high = 1e12, 1e17
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if speed(model, layout, work, middle) < target else (low, middle)
    return middle


def compared():
    """(what, published, predicted) of each run; None was predicted of the one that fits."""
    for group in PUBLISHED:
        runs = [
            (what, MODELS[f"llama3-{name}"], Layout(*layout), Work(*work), told)
            for what, name, layout, work, told in group
        ]
        flops, first = fitted(*runs[0][1:]), runs[0][-1]
        for run in runs:
            what, *setting, told = run
            # In units of the first: some tell tokens, some operations.
            ours = first * speed(*setting, flops) / speed(*runs[0][1:-1], flops)
            yield what, told, None if run is runs[0] else ours

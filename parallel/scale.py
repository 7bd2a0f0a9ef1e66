"""Predict the speed and the memory of training on many GPUs, or compare with published runs.

    python -m parallel.scale predict llama3-8b --gpus 128
    python -m parallel.scale published

The page parallel_scale says what it leaves out.
"""

import argparse
import sys
from dataclasses import replace

from parallel.costs import Layout, Machine, Model, Work, memory, step

# Shapes: Radford et al. 2019, and Grattafiori et al. 2024 (arXiv 2407.21783), table 3.
MODELS = {
    "gpt2": Model(12, 768, 12, 12, 3072, 50_257, gated=False),
    "gpt2-xl": Model(48, 1600, 25, 25, 6400, 50_257, gated=False),
    "llama3-8b": Model(32, 4096, 32, 8, 14_336, 128_256),
    "llama3-70b": Model(80, 8192, 64, 8, 28_672, 128_256),
    "llama3-405b": Model(126, 16_384, 128, 8, 53_248, 128_256),
}
# Memory, dense bf16 FLOP/s, and NVLink's bytes/s in one direction: NVIDIA's data sheets.
GPUS = {
    "a100": (80e9, 312e12, 300e9),
    "h100": (80e9, 989e12, 450e9),
    "h200": (141e9, 989e12, 450e9),
    "b200": (180e9, 2250e12, 900e9),
}
ROOM = 0.9  # of a GPU's memory: the rest is for kernels and fragments
LONG = 16_384  # tokens of a slice: the formulas are too kind to context parallelism
POWERS = [2**n for n in range(20)]


def machine(gpu, share, link):
    """A GPU that reaches this share of its peak. `link`, in Gbit/s, is its own to other nodes."""
    size, peak, inside = GPUS[gpu]
    return Machine(size, share * peak, inside, link * 1e9 / 8)


def layouts(model, gpus, work, node=8):
    """All that are sensible: tensor parallelism within a node, FSDP or HSDP of what is left."""
    for tensor in [n for n in POWERS if n <= node and model.kv_heads % n == 0]:
        for pipeline in [n for n in POWERS if n <= model.layers // 2]:
            for context in [n for n in POWERS if n == 1 or work.context // n >= LONG]:
                left, rest = divmod(gpus, tensor * pipeline * context)
                if rest or not left:
                    continue
                for shards in {1, left, min(left, max(1, node // (tensor * context)))}:
                    if left % shards == 0:
                        yield Layout(tensor, context, shards, left // shards, pipeline)


def ranked(model, gpus, work, on):
    """(tokens/s, layout, work, seconds by part, bytes by part) of each that fits, best first."""
    found, smallest = [], None
    for layout in layouts(model, gpus, work):
        for micro in (4, 2, 1):
            for recompute in (False, True):
                own = replace(work, micro=micro, recompute=recompute)
                if not own.rounds(layout):
                    continue
                size = memory(model, layout, own)
                if sum(size.values()) > ROOM * on.memory:
                    smallest = min(smallest or sum(size.values()), sum(size.values()))
                    continue
                spent = step(model, layout, own, on)
                speed = own.sequences * own.context / sum(spent.values())
                found.append((speed, layout, own, spent, size))
    best = {}
    for one in sorted(found, key=lambda one: -one[0]):
        best.setdefault(str(one[1]), one)  # of each layout, the best micro-batch
    return [*best.values()], smallest


def predict(args):
    model, on = MODELS[args.model], machine(args.gpu, args.share, args.link)
    work = Work(args.sequences, args.context)
    found, smallest = ranked(model, args.gpus, work, on)
    if not found:
        needs = f"{smallest / 1e9:,.0f} GB each" if smallest else "more --sequences"
        sys.exit(
            f"{args.model} on {args.gpus} GPUs of {on.memory / 1e9:.0f} GB needs {needs}: "
            "pass more --gpus, a larger --gpu, or other --sequences"
        )
    size = model.parameters(work.context) / 1e9
    print(f"{args.model}: {size:,.2f} billion weights, {work.sequences} × {work.context} tokens")
    print("tokens/s/GPU  layout                       micro-batch    GB  computing bubble messages")
    for speed, layout, own, spent, sizes in found[: args.top]:
        told = f"{own.micro}{', again' if own.recompute else ''}"
        print(f"{speed / layout.gpus:12,.0f}  {layout!s:30}{told:10}", end="")
        print(f"{sum(sizes.values()) / 1e9:7.0f}", end="")
        shares = [spent[part] / sum(spent.values()) for part in ("computing", "bubble", "messages")]
        print("{:11.0%}{:7.0%}{:9.0%}".format(*shares))


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


def published(args):
    for what, told, ours in compared():
        ending = f"predicted {ours:5,.0f}, {ours / told - 1:+.0%}" if ours else "fits the rate"
        print(f"{what:24} published {told:5,}, {ending}")


def main():
    parser = argparse.ArgumentParser(prog="python -m parallel.scale", description=__doc__)
    commands = parser.add_subparsers(required=True)
    commands.add_parser("published", help="compare with published runs").set_defaults(do=published)
    own = commands.add_parser("predict", help="the best layouts of a model, on so many GPUs")
    own.add_argument("model", choices=MODELS)
    own.add_argument("--gpus", type=int, required=True)
    own.add_argument("--gpu", choices=GPUS, default="h100")
    own.add_argument("--link", type=float, default=400, help="of a GPU to other nodes, in Gbit/s")
    own.add_argument("--share", type=float, default=0.4, help="of its peak that a GPU computes at")
    own.add_argument("--sequences", type=int, default=512, help="per step, on all GPUs")
    own.add_argument("--context", type=int, default=8192, help="tokens of a sequence")
    own.add_argument("--top", type=int, default=8, help="how many layouts are printed")
    own.set_defaults(do=predict)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()

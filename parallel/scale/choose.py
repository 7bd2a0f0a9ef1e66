"""The layouts that are possible for a model on so many GPUs, best first."""

from dataclasses import replace

from parallel.scale.costs import Layout, Machine, Model, memory, step

# Shapes: Radford et al. 2019; Grattafiori et al. 2024 (arXiv 2407.21783), table 3; of the model
# with the size of GPT-3, Jiang et al. 2024 (arXiv 2402.15627), table 1.
MODELS = {
    "gpt2": Model(12, 768, 12, 12, 3072, 50_257, gated=False),
    "gpt2-medium": Model(24, 1024, 16, 16, 4096, 50_257, gated=False),
    "gpt2-large": Model(36, 1280, 20, 20, 5120, 50_257, gated=False),
    "gpt2-xl": Model(48, 1600, 25, 25, 6400, 50_257, gated=False),
    "gpt3": Model(96, 12_288, 128, 128, 49_152, 64_000, gated=False),
    "llama3-8b": Model(32, 4096, 32, 8, 14_336, 128_256),
    "llama3-70b": Model(80, 8192, 64, 8, 28_672, 128_256),
    "llama3-405b": Model(126, 16_384, 128, 8, 53_248, 128_256),
    "mixtral-8x7b": Model(32, 4096, 32, 8, 14_336, 32_000, experts=8, chosen=2),
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
                    for experts in {1, min(shards, model.experts)}:
                        if left % shards == 0 and shards % experts == 0:
                            divided = (shards, left // shards, pipeline, 1, experts)
                            yield Layout(tensor, context, *divided)


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

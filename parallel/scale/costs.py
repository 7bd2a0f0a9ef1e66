"""What a step of training costs: memory, messages and time, for each way to divide a model.

All numbers are those of one GPU. Sizes are in bytes, times in seconds, rates per second. Training
is in mixed precision: weights, gradients and AdamW's two averages in fp32, products in bf16. The
page parallel_scale explains the formulas.
"""

from dataclasses import dataclass
from math import prod

HALF, FULL = 2, 4  # bytes of a number in bf16 and in fp32


@dataclass(frozen=True)
class Model:
    """A transformer with biases, two matrices per MLP and one tied embedding, as GPT-2, or
    without biases, with three matrices and two embeddings, as Llama (`gated`).
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int  # of the MLP
    vocab: int
    gated: bool = True
    experts: int = 1  # MLPs of a block, of which each token takes some
    chosen: int = 1

    @property
    def kv_width(self):
        return self.width * self.kv_heads // self.heads

    @property
    def block(self):
        """Parameters of a block."""
        attention = 2 * self.width * (self.width + self.kv_width)
        router = self.width * self.experts if self.experts > 1 else 0
        biases = 2 * self.width + 2 * self.kv_width + self.hidden + self.width
        rest = 2 * self.width + (0 if self.gated else biases + 2 * self.width)
        return attention + router + self.experts * self.expert + rest

    @property
    def expert(self):
        """Weights of an MLP."""
        return (3 if self.gated else 2) * self.width * self.hidden

    def rest(self, context):
        """All parameters outside of the blocks."""
        if self.gated:
            return (2 * self.vocab + 1) * self.width
        return (self.vocab + context + 2) * self.width

    def parameters(self, context):
        return self.layers * self.block + self.rest(context)

    def flops(self, context):
        """Per token, forward and backward: 6 per weight that multiplies (Kaplan et al. 2020), and
        causal attention, of which kernels compute one half of the scores: 6 L C T.
        """
        block = self.block - (self.experts - self.chosen) * self.expert
        products = self.layers * block + self.vocab * self.width
        return 6 * products + 6 * self.layers * self.width * context

    @property
    def kept(self):
        """Numbers per token that a block keeps for backward(), with a fused attention kernel: two
        inputs and outputs of norms, q, k, v, the attention's output, and those in the MLP.
        """
        mlp = (4 if self.gated else 2) * self.hidden
        return 6 * self.width + 2 * self.kv_width + self.chosen * mlp


@dataclass(frozen=True)
class Layout:
    """By how many each dimension divides. Ranks that differ in `tensor` are the nearest."""

    tensor: int = 1  # each layer
    context: int = 1  # each sequence
    shards: int = 1  # FSDP
    replicas: int = 1  # DDP, or HSDP
    pipeline: int = 1
    interleaved: int = 1  # stages per rank of a pipeline
    experts: int = 1  # so many neighbours among the shards divide a block's experts

    @property
    def gpus(self):
        return self.tensor * self.context * self.shards * self.replicas * self.pipeline

    def __str__(self):
        names = {"tensor": "TP", "context": "CP", "experts": "EP", "shards": "FSDP",
                 "replicas": "DDP", "pipeline": "PP"}  # fmt: skip
        parts = [f"{short} {n}" for name, short in names.items() if (n := getattr(self, name)) > 1]
        return " × ".join(parts) or "1 GPU"


@dataclass(frozen=True)
class Work:
    """`sequences` of `context` tokens per step, `micro` of them at once."""

    sequences: int
    context: int
    micro: int = 1
    recompute: bool = False  # the activations of each block

    def rounds(self, layout):
        """Micro-batches per step of one pipeline; 0 if the ranks cannot share the sequences."""
        rounds, rest = divmod(self.sequences, layout.shards * layout.replicas * self.micro)
        return 0 if rest else rounds


@dataclass(frozen=True)
class Machine:
    memory: float
    flops: float  # that training reaches without messages
    inside: float  # bytes that a GPU sends within its node
    between: float  # and to other nodes
    node: int = 8

    def rate(self, layout, dimension):
        """Of a ring along `dimension`: it is between nodes if its ranks do not fit into one."""
        order = ["tensor", "context", "shards", "replicas", "pipeline"]
        inner = order[: order.index("shards" if dimension == "experts" else dimension)]
        apart = prod(getattr(layout, name) for name in (*inner, dimension))
        return self.inside if apart <= self.node else self.between


@dataclass(frozen=True)
class Message:
    dimension: str
    operation: str
    times: int  # per micro-batch
    numbers: int  # of the whole tensor, which each rank has before or after
    width: int = HALF  # of a number

    def seconds(self, layout, machine):
        """Of all: a ring passes (n - 1)/n of the tensor, and twice that for an all-reduce."""
        size = getattr(layout, self.dimension)
        rounds = {"all_reduce": 2, "send": size / (size - 1)}.get(self.operation, 1)
        sent = rounds * (size - 1) / size * self.numbers * self.width
        return self.times * sent / machine.rate(layout, self.dimension)


def gathered(model, layout):
    """Weights of a block that FSDP gathers: of divided experts, those that other ranks share."""
    shared = model.experts * model.expert if layout.experts > 1 else 0
    own = shared // layout.experts if layout.experts < layout.shards else 0
    return (model.block - shared + own) // layout.tensor


def messages(model, layout, work):
    """The collectives of one micro-batch. An all-reduce of gradients comes once per step."""
    layers, tokens = model.layers // layout.pipeline, work.micro * work.context // layout.context
    split, once = layout.tensor * layout.pipeline, 1 if layout.pipeline == 1 else 0
    block, rest = model.block // layout.tensor, model.rest(work.context) // split
    again = work.recompute
    found = []
    if layout.experts > 1:  # there and back, forward and backward
        rows = tokens * model.chosen * model.width // layout.tensor
        found.append(Message("experts", "all_to_all", (4 + 2 * again) * layers, rows))
    if layout.shards > 1:
        # Weights are gathered for forward() and for backward(); a pipeline keeps them, as it does
        # the rest, which is gathered once.
        found += [
            Message("shards", "all_gather", (1 + once) * layers, gathered(model, layout)),
            Message("shards", "all_gather", 1, rest),
            Message("shards", "reduce_scatter", layers, gathered(model, layout), FULL),
            Message("shards", "reduce_scatter", 1, rest, FULL),
        ]
    if layout.replicas > 1:
        own = (layers * block + rest) // layout.shards
        found.append(Message("replicas", "all_reduce", 1, own, FULL))
    if layout.tensor > 1:
        activations = tokens * model.width
        found += [
            Message("tensor", "all_gather", (4 + 2 * again) * layers + 2 * once, activations),
            Message("tensor", "reduce_scatter", (4 + again) * layers, activations),
        ]
    if layout.context > 1:
        pair = 2 * work.micro * work.context * model.kv_width // layout.tensor
        found += [
            Message("context", "all_gather", (1 + again) * layers, pair),
            Message("context", "reduce_scatter", layers, pair),
        ]
    if layout.pipeline > 1:
        activations = tokens * model.width // layout.tensor
        found.append(Message("pipeline", "send", 2 * layout.interleaved, activations))
    return found


def memory(model, layout, work):
    """By part: what belongs to the weights, and what to the tokens."""
    layers = -(-model.layers // layout.pipeline)
    rest = model.rest(work.context) // (layout.tensor * (2 if layout.pipeline > 1 else 1))
    block = model.block // layout.tensor
    own = layers * block + rest
    shared = layout.shards * layout.context if layout.shards > 1 else 1
    weights = 4 * FULL * own / shared  # weights, gradients, and two averages
    # In use: two blocks and the rest, gathered, or autocast's copies of all.
    weights += HALF * (2 * gathered(model, layout) + rest if shared > 1 else own)
    if shared > 1 and layout.pipeline > 1:  # whole weights and gradients: it sends once per step
        whole = layers * gathered(model, layout) + rest
        weights = FULL * (4 * own - whole) / shared + (HALF + FULL) * whole
    tokens = work.micro * work.context // layout.context
    kept = HALF * model.kept // layout.tensor
    if layout.context > 1:  # gathered keys and values, of all tokens
        kept += HALF * 2 * model.kv_width * layout.context // layout.tensor
    inputs = HALF * model.width // layout.tensor
    per_token = layers * inputs + kept if work.recompute else layers * kept
    rounds = min(layout.pipeline, work.rounds(layout)) if layout.pipeline > 1 else 1
    logits = (HALF + 2 * FULL) * model.vocab // layout.tensor
    return {"weights": weights, "activations": tokens * (rounds * per_token + logits)}


def step(model, layout, work, machine):
    """The seconds of a step, by part: computing, waiting in the pipeline, and messages."""
    rounds = work.rounds(layout)
    tokens = rounds * work.micro * work.context
    split = layout.tensor * layout.context * layout.pipeline
    computing = tokens * model.flops(work.context) / split / machine.flops
    computing *= 4 / 3 if work.recompute else 1
    spent = dict.fromkeys(("shards", "replicas", "tensor", "context", "experts", "pipeline"), 0)
    for one in messages(model, layout, work):
        spent[one.dimension] += one.seconds(layout, machine)
    within = rounds * sum(spent[name] for name in ("tensor", "context", "experts", "pipeline"))
    bubble = (layout.pipeline - 1) / (rounds * layout.interleaved) * (computing + within)
    # Weights of a pipeline are gathered once. Elsewhere they travel while a block computes, but
    # nothing hides the first that are gathered and the last that are sent: the embedding's.
    shards = spent["shards"] * (rounds if layout.pipeline == 1 else 1)
    first = 0
    if layout.shards > 1:
        ends = Message("shards", "all_gather", 1, model.vocab * model.width // layout.tensor)
        first = 3 * ends.seconds(layout, machine)  # gathered in bf16, sent back in fp32
    hidden = max(shards - computing, first)
    # Gradients are complete only in the last micro-batch's backward(), or, interleaved, before it.
    backward = (3 / 4 if work.recompute else 2 / 3) * computing / rounds
    hidden += max(spent["replicas"] - backward, 0)
    return {"computing": computing, "bubble": bubble, "messages": within + hidden}

"""Everything that can be set, the presets, and what is refused before a process group is built."""

from dataclasses import dataclass
from typing import Literal

import torch

from guard import UserError
from mingpt.model import GPT, MODELS, GPTConfig


@dataclass(frozen=True)
class Config:
    """A training run. Raises UserError for what cannot work, with the nearest value that does."""

    data: str = ""
    """Text to learn from, in UTF-8: a file or a URL. Default: source of the standard library."""
    tokenizer: Literal["chars", "gpt2"] = "chars"
    """A token for each character, or GPT-2's byte pairs (needs the package tiktoken)."""
    val_tokens: int = 32_768
    """Validate on so many tokens of the text's last tenth; 0 means on all of it."""
    cache: str = "data"
    """Folder for the tokenised text."""

    model: Literal[*MODELS] = "gpt-micro"
    """Layers, heads and width of the model, by name."""
    n_layer: int | None = None
    """Layers, if other than the model's."""
    n_head: int | None = None
    """Heads, if other than the model's."""
    n_embd: int | None = None
    """Width, if other than the model's: a multiple of the heads."""
    init_from: str = ""
    """Weights to start from: GPT-2's, a safetensors file (needs the package safetensors)."""
    block_size: int = 64
    """Tokens in a sequence, and the most that the model can look back on."""
    dropout: float = 0.0
    """Share of activations that are dropped in training."""

    total_steps: int = 2000
    """Steps of the optimizer."""
    batch_size: int = 12
    """Sequences in a step, over all processes: the result does not depend on their number."""
    micro_batch_size: int = 64
    """The most sequences that one process takes at once; more are accumulated."""
    learning_rate: float = 8e-3
    """The highest, reached after the warm-up."""
    min_learning_rate: float = 0.0
    """What it falls to in the end."""
    warmup_steps: int = 200
    """Steps in which the learning rate rises from 0."""
    weight_decay: float = 0.5
    """Of matrices; biases and gains of LayerNorm have none."""
    beta2: float = 0.99
    """AdamW's memory of squared gradients."""
    grad_clip: float = 1.0
    """The longest gradient; longer ones are scaled to it."""
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    """Of matrix products. auto: bf16 where a GPU has it, else fp32."""
    products: Literal["auto", "torch", "onednn"] = "auto"
    """Who multiplies on a CPU, in fp32. auto: oneDNN in place of MKL, on all but Intel's."""
    keep_memory: bool = True
    """On a CPU: what a step frees is kept for the next one, up to 1 GB."""
    fused: bool = True
    """AdamW in one kernel; else as torch does it of itself."""
    compile: bool = False
    """Compile the model: a slow start, fewer and larger kernels from then on."""
    seed: int = 0
    """Of the initial weights, the order of the samples and the dropout."""

    log_every: int = 50
    """Steps between two lines of the log."""
    eval_every: int = 250
    """Steps between two validations."""
    save_every: int = 250
    """The most steps that a failure may cost; a checkpoint is written at twice this rate."""
    checkpoint_path: str = "mingpt.pt"
    """Resumed from if it is there. The log stands beside it, with .jsonl at its end."""
    tensorboard: str = ""
    """Folder for TensorBoard (needs the package tensorboard); default: none."""
    stopped_status: int = 143
    """Exit status of a process after SIGTERM, when all is saved. torchrun has one of its own."""

    def __post_init__(self):
        at_least = {"save_every": 2, "val_tokens": 0, "warmup_steps": 0, "seed": 0}
        for name, kind in self.__annotations__.items():
            if kind is int and getattr(self, name) < at_least.get(name, 1):
                raise UserError(
                    f"{name} is {getattr(self, name)}, but must be at least {at_least.get(name, 1)}"
                )
        for name in ("learning_rate", "grad_clip"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}, but must be above 0")
        if not self.weight_decay >= 0:
            raise UserError(f"weight_decay is {self.weight_decay}, but must be at least 0")
        for name in ("learning_rate", "weight_decay"):
            if getattr(self, name) == float("inf"):
                raise UserError(f"{name} is inf, but must be finite")
        # A process has 8 bits to end with; torch has 64 for a seed, to which the rank is added.
        for name, most in (("stopped_status", 255), ("seed", 2**62)):
            if getattr(self, name) > most:
                raise UserError(f"{name} is {getattr(self, name)}, but must be at most {most}")
        if not 0 <= self.min_learning_rate <= self.learning_rate:
            raise UserError(
                f"min_learning_rate is {self.min_learning_rate}, but must be from 0 to "
                f"learning_rate, {self.learning_rate}"
            )
        if not 0 <= self.beta2 < 1:
            raise UserError(f"beta2 is {self.beta2}, but must be in [0, 1)")
        self.shape(vocab_size=1)

    @property
    def autocast(self):
        """Options of torch.autocast: matrix products in half precision, all that sums in full."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return {"dtype": dtype, "enabled": dtype is not None}

    @property
    def fp16(self):
        """Whether small gradients would become 0, so that the loss has to be scaled."""
        return self.precision == "fp16"

    @property
    def adamw(self):
        """Options of torch.optim.AdamW but the learning rate, which changes with the step."""
        return {"betas": (0.9, self.beta2), "fused": self.fused or None}

    def shape(self, vocab_size):
        """The GPTConfig of the model."""
        given = {name: getattr(self, name) for name in ("n_layer", "n_head", "n_embd")}
        given = {name: value for name, value in given.items() if value is not None}
        given |= {"block_size": self.block_size, "dropout": self.dropout}
        try:
            return GPTConfig.preset(self.model, vocab_size=vocab_size, **given)
        except ValueError as error:
            raise UserError(str(error)) from None

    def build(self, vocab_size):
        """The model, with fresh weights or those of `init_from`."""
        model = GPT(self.shape(vocab_size))
        if self.init_from:
            from mingpt import weights  # needs a package that nobody else does

            weights.load(model, self.init_from)
        return model

    def accumulation(self, world_size):
        """How many micro-batches each of `world_size` processes takes in a step."""
        share, rest = divmod(self.batch_size, world_size)
        if rest or not share:
            nearest = max(1, round(self.batch_size / world_size)) * world_size
            raise UserError(
                f"batch_size is {self.batch_size}, but must be a multiple of the number of "
                f"processes, {world_size}: the nearest is {nearest}"
            )
        # The fewest that fit; share of them always do, with one sequence in each.
        return next(
            n for n in range(1, share + 1) if share % n == 0 and share // n <= self.micro_batch_size
        )


# The laptop's is the setting in which nanoGPT's README trains on a CPU; the GPU's are GPT-2's, in
# batches of half a million tokens (Brown et al. 2020, table 2.1, for the learning rates).
_GPT2 = {
    "tokenizer": "gpt2", "model": "gpt2", "block_size": 1024, "batch_size": 480, "beta2": 0.95,
    "micro_batch_size": 16, "learning_rate": 6e-4, "min_learning_rate": 6e-5, "warmup_steps": 700,
    "weight_decay": 0.1, "total_steps": 20_000, "val_tokens": 1_048_576, "compile": True,
    "save_every": 500,
}  # fmt: skip
PRESETS = {
    "laptop": Config(),
    "gpu": Config(
        model="gpt-mini", n_embd=384, block_size=256, batch_size=64, total_steps=5000, dropout=0.2,
        learning_rate=1e-3, min_learning_rate=1e-4, warmup_steps=100, weight_decay=0.1,
        val_tokens=0, compile=True,
    ),
    "8gpus": Config(**_GPT2),
    "nodes": Config(**_GPT2 | {
        "model": "gpt2-xl", "micro_batch_size": 4, "learning_rate": 2e-4, "min_learning_rate": 2e-5,
    }),
}  # fmt: skip

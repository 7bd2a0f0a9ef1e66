"""Every option, its checks, and the presets."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from guard import UserError
from mingpt.model import GPT, MODELS, GPTConfig


@dataclass(frozen=True)
class Config:
    """The options of a run. Raises UserError for an impossible value, and names the nearest."""

    data: str = ""
    """Text to train on, in UTF-8: a file or an http(s) URL. Default: Python's own library."""
    tokenizer: Literal["chars", "gpt2"] = "chars"
    """One token per character, or GPT-2's byte pairs (needs the package tiktoken)."""
    val_tokens: int = 32_768
    """Validate on this many tokens of the text's last tenth; 0 means all of it."""
    cache: str = "data"
    """Folder for the tokenised text."""

    model: Literal[*MODELS] = "gpt-micro"
    """Layers, heads and width of the model, by name."""
    n_layer: int | None = None
    """Layers, in place of the model's."""
    n_head: int | None = None
    """Heads, in place of the model's."""
    n_embd: int | None = None
    """Width, in place of the model's: a multiple of the heads."""
    init_from: str = ""
    """A safetensors file of GPT-2's weights to start from (needs the package safetensors)."""
    block_size: int = 64
    """Tokens per sequence: the longest context of the model."""
    dropout: float = 0.0
    """Probability that training drops an activation."""

    total_steps: int = 2000
    """Optimizer steps."""
    batch_size: int = 12
    """Sequences per step, over all processes. So the number of processes does not matter."""
    micro_batch_size: int = 64
    """The most sequences per forward pass of a process; it accumulates gradients over more."""
    learning_rate: float = 8e-3
    """The highest learning rate, reached after the warm-up."""
    min_learning_rate: float = 0.0
    """The learning rate at the end."""
    warmup_steps: int = 200
    """Steps in which the learning rate rises from 0."""
    weight_decay: float = 0.5
    """Weight decay of matrices; biases and LayerNorm's gains have none."""
    beta2: float = 0.99
    """AdamW's decay rate of the average of squared gradients."""
    grad_clip: float = 1.0
    """The largest norm of a gradient; larger ones are scaled down to it."""
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    """Precision of matrix products. auto: bf16 on a GPU that has it, else fp32."""
    compile: bool = False
    """Compile the model: a slower start, then fewer and larger kernels."""
    deterministic: bool = False
    """Compute the same bits in each run on a GPU, more slowly. A CPU does so anyway."""
    seed: int = 0
    """Seed of the initial weights, the order of the samples and the dropout."""

    log_every: int = 50
    """Steps between two lines of the log."""
    eval_every: int = 250
    """Steps between two validations."""
    save_every: int = 250
    """Steps between two checkpoints. A failure costs at most these, and those made while the last
    checkpoint was being written."""
    checkpoint_path: str = "mingpt.pt"
    """The run resumes from this file if it exists. The log is beside it, with the suffix .jsonl."""
    tensorboard: str = ""
    """Folder for TensorBoard (needs the package tensorboard); default: none."""
    stopped_status: int = 143
    """Exit status of a process that saved and stopped after SIGTERM. torchrun's is its own."""

    def __post_init__(self):
        at_least = {"val_tokens": 0, "warmup_steps": 0, "seed": 0}
        for name, kind in self.__annotations__.items():
            least, value = at_least.get(name, 1), getattr(self, name)
            if kind is int and value < least:
                raise UserError(f"{name} is {value}, but must be at least {least}")
        for name in ("learning_rate", "grad_clip"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}, but must be above 0")
        if not self.weight_decay >= 0:
            raise UserError(f"weight_decay is {self.weight_decay}, but must be at least 0")
        if not 0 <= self.min_learning_rate <= self.learning_rate:
            raise UserError(
                f"min_learning_rate is {self.min_learning_rate}, but must be from 0 to "
                f"learning_rate, {self.learning_rate}"
            )
        if not 0 <= self.beta2 < 1:
            raise UserError(f"beta2 is {self.beta2}, but must be in [0, 1)")
        if self.data and os.path.realpath(self.data) == os.path.realpath(self.log):
            raise UserError(f"{self.log} is --data, but also the log's name: change one of them")
        self.shape(vocab_size=1)

    @property
    def log(self):
        """The path of the log, beside the checkpoint."""
        return Path(self.checkpoint_path.removesuffix(".pt") + ".jsonl")

    @property
    def autocast(self):
        """Options of torch.autocast: matrix products in half precision, reductions in fp32."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return {"dtype": dtype, "enabled": dtype is not None}

    @property
    def fp16(self):
        """Whether the loss must be scaled, because fp16 rounds small gradients to 0."""
        return self.precision == "fp16"

    @property
    def adamw(self):
        """Options of torch.optim.AdamW."""
        return {"lr": self.learning_rate, "betas": (0.9, self.beta2), "fused": True}

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
        """A model with fresh weights, or with those of `init_from`."""
        model = GPT(self.shape(vocab_size))
        if self.init_from:
            from mingpt import weights  # imports safetensors, which only this option needs

            weights.load(model, self.init_from)
        return model

    def accumulation(self, world_size):
        """How many micro-batches per step each of `world_size` processes runs."""
        share, rest = divmod(self.batch_size, world_size)
        if rest or not share:
            nearest = max(1, round(self.batch_size / world_size)) * world_size
            raise UserError(
                f"batch_size is {self.batch_size}, but must be a multiple of the number of "
                f"processes, {world_size}: the nearest is {nearest}"
            )
        # The largest micro-batch that divides the share. One sequence always does.
        sizes = range(min(self.micro_batch_size, share), 0, -1)
        return share // next(size for size in sizes if share % size == 0)


# `laptop` has the options of nanoGPT's README for a CPU. `8gpus` and `nodes` train GPT-2 on
# batches of half a million tokens, with the learning rates of Brown et al. 2020, table 2.1. For 16
# sequences GPT-2 keeps 10 GiB from forward to backward: the page "On GPUs" counts them.
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

"""GPT-2's published weights as the start of a training: fine-tuning."""

import re

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from utils import Mistake

_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")  # published as [in, out]
_NO_WEIGHT = re.compile(r"\.attn\.(masked_)?bias$|^lm_head")  # the causal mask; wte once more


def load(model, path):
    """Copy the weights of the safetensors file at `path` into `model`, a GPT.

    Of the positions as many as the model has, so that a shorter block_size will do. Raises Mistake
    for a file that is none, or of another shape.
    """
    try:
        published = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Mistake(f"cannot read --init_from {path}: {reason}") from None
    found = {}
    for name, weight in published.items():
        name = name.removeprefix("transformer.")
        if not _NO_WEIGHT.search(name):
            found[name] = weight.t() if _TRANSPOSED.search(name) else weight
    for name, weight in model.transformer.state_dict().items():
        other = found.get(name)
        if other is not None and name == "wpe.weight":
            other = other[: len(weight)]
        if other is None or other.shape != weight.shape:
            if other is not None and name == "wpe.weight" and len(other) < len(weight):
                raise Mistake(
                    f"block_size is {len(weight)}, but must be at most {len(other)}, that of {path}"
                )
            has = "no such" if other is None else f"one of {_size(other)}"
            raise Mistake(
                f"the model has {name} of {_size(weight)}, but {path} has {has}: "
                "ask for its --model and --tokenizer, as in --model gpt2 --tokenizer gpt2"
            )
        with torch.no_grad():
            weight.copy_(other)


def _size(weight):
    return " × ".join(map(str, weight.shape))

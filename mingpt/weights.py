"""Start training from GPT-2's published weights: fine-tuning."""

import re

import torch
from safetensors import SafetensorError, safe_open

from guard import UserError

_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")  # published as [in, out]
_NO_WEIGHT = re.compile(r"\.attn\.(masked_)?bias$|^lm_head")  # the causal mask; wte once more


def load(model, path):
    """Copy the weights of the safetensors file at `path` into `model`, a GPT.

    The model may have a shorter block_size: it gets the first position embeddings. Raises UserError
    for a file of another format or shape.
    """
    check(model, path)
    with safe_open(path, "pt") as file, torch.no_grad():
        names = _names(file)
        for name, weight in model.transformer.state_dict().items():
            published = file.get_tensor(names[name])
            published = published.t() if _TRANSPOSED.search(name) else published
            weight.copy_(published[: len(weight)])


def check(model, path, unknown=()):
    """Raise UserError unless the safetensors file at `path` has the weights of `model`, a GPT.

    Reads shapes only, so `model` may be on the device meta, without weights. Names in `unknown`
    are not compared.
    """
    try:
        with safe_open(path, "pt") as file:
            shapes = {name: file.get_slice(has).get_shape() for name, has in _names(file).items()}
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read --init_from {path}: {reason}") from None
    for name, weight in model.transformer.state_dict().items():
        wanted, shape = list(weight.shape), shapes.get(name)
        if shape and _TRANSPOSED.search(name):
            shape = shape[::-1]
        if shape and name == "wpe.weight" and shape[1:] == wanted[1:]:
            if shape[0] < wanted[0]:
                raise UserError(
                    f"block_size is {wanted[0]}, but must be at most {shape[0]}, that of {path}"
                )
            continue
        if shape != wanted and name not in unknown:
            has = f"one of {_size(shape)}" if shape else "no such"
            raise UserError(
                f"the model has {name} of {_size(wanted)}, but {path} has {has}: "
                "ask for its --model and --tokenizer, as in --model gpt2 --tokenizer gpt2"
            )


def _names(file):
    """The file's name of each of our weights."""
    return {
        name.removeprefix("transformer."): name
        for name in file.keys()  # noqa: SIM118 (not a mapping)
        if not _NO_WEIGHT.search(name)
    }


def _size(shape):
    return " × ".join(map(str, shape))

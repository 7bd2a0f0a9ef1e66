"""Start training from GPT-2's published weights: fine-tuning."""

import re

from safetensors import SafetensorError
from safetensors.torch import load_file

from guard import UserError

_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")  # published as [in, out]


def load(model, path):
    """Copy the weights of the safetensors file at `path` into `model`, a GPT.

    The model may have a shorter block_size: it gets the first position embeddings. Raises UserError
    for a file of another format or shape.
    """
    try:
        published = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read --init_from {path}: {reason}") from None
    published = {name.removeprefix("transformer."): weight for name, weight in published.items()}
    for name, weight in model.transformer.state_dict().items():
        found = published.get(name)
        if found is not None and _TRANSPOSED.search(name):
            found = found.t()
        if found is not None and name == "wpe.weight":
            if len(found) < len(weight):
                raise UserError(
                    f"block_size is {len(weight)}, but must be at most {len(found)}, that of {path}"
                )
            found = found[: len(weight)]
        if found is None or found.shape != weight.shape:
            has = "no such" if found is None else f"one of {_size(found.shape)}"
            raise UserError(
                f"the model has {name} of {_size(weight.shape)}, but {path} has {has}: "
                "ask for its --model and --tokenizer, as in --model gpt2 --tokenizer gpt2"
            )
        weight.copy_(found)


def _size(shape):
    return " × ".join(map(str, shape))

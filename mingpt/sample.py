"""Write text with a trained model, on one device.

    python -m mingpt.sample --prompt "def "

It reads any checkpoint of the trainer, from any number of processes.
"""

import sys
from dataclasses import dataclass

import torch

import guard
import utils
from guard import AWAY, UserError
from mingpt import checkpoints, tokens
from mingpt.cli import parse
from mingpt.model import GPT, GPTConfig


@dataclass(frozen=True)
class Options:
    checkpoint_path: str = "mingpt.pt"
    """A checkpoint of the trainer."""
    prompt: str | None = None
    """The text to continue. Default: a new line, or the first character if the text had none."""
    count: int = 500
    """Tokens to write."""
    temperature: float = 0.8
    """Below 1, likely tokens become likelier; 0 always takes the likeliest."""
    top_k: int | None = None
    """Draw among this many of the likeliest tokens. Default: among all."""
    seed: int = 0
    """Seed of the random draws."""

    def __post_init__(self):
        for name in ("count", "top_k"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} is {value}, but must be at least 1")
        if not self.temperature >= 0:
            raise UserError(f"temperature is {self.temperature}, but must be at least 0")
        if self.prompt == "":
            raise UserError("prompt is empty, but must have a character, or be left out")


def main():
    guard.install_excepthook()
    options = parse(Options, sys.argv[1:], Options(), __doc__)
    path = options.checkpoint_path
    try:
        checkpoint = checkpoints.load(path)
    except UserError as error:  # it advises a run that would overwrite the file
        ours = "pass the --checkpoint_path of a GPT that mingpt.main trained"
        raise UserError(str(error).replace(AWAY, ours)) from None
    if not checkpoint["steps_run"]:
        raise UserError(f"no checkpoint {path}: train one, or pass its --checkpoint_path")
    if not checkpoint["model"]:
        one = f"python docs/labs/one_file.py {path} FILE makes one file of both"
        raise UserError(f"{path} has no weights, only {path}.shards has: {one}")
    kind = tokens.restore(checkpoint["text"])
    model = GPT(GPTConfig(**checkpoint["model_config"]))
    model.load_state_dict(checkpoint["model"])
    if model.config.n_embd < 512:  # one token is too little work for two threads
        torch.set_num_threads(1)
    device = utils.device()
    prompt = options.prompt
    if prompt is None:  # byte pairs encode every character
        prompt = "\n" if "\n" in getattr(kind, "vocabulary", "\n") else kind.decode([0])
    prompt = torch.tensor([kind.encode(prompt).tolist()], device=device)
    generator = torch.Generator(device).manual_seed(options.seed)
    written = model.to(device).generate(
        prompt, options.count, options.temperature, options.top_k, generator
    )
    utils.show(kind.decode(written[0].tolist()))


if __name__ == "__main__":
    main()

"""Build the GPT's trainer on random tokens. The labs about GPUs measure it."""

import os
from dataclasses import replace
from functools import cache

import numpy as np
import torch

import utils
from mingpt import data, tokens
from mingpt.config import PRESETS
from mingpt.trainer import Trainer

VOCABULARY = 50_257 if utils.num_gpus() else 257


def config(**options):
    """The preset `8gpus` with these options. Without a GPU, a model that a laptop can train."""
    size = {} if utils.num_gpus() else {"model": "gpt-nano", "block_size": 32}
    never = dict.fromkeys(("total_steps", "log_every", "save_every"), 10**9)
    own = {"compile": False, "warmup_steps": 0, "checkpoint_path": os.devnull, **size, **never}
    return replace(PRESETS["8gpus"], **{**own, **options})


@cache
def text(size):
    characters = tokens.build("chars", "".join(map(chr, range(0x10000, 0x10000 + VOCABULARY))))
    numbers = np.random.default_rng(0).integers(0, VOCABULARY, 4_000_000)
    return data.TokenDataset(numbers, size, {**characters.about, "key": "random"})


def trainer(args):
    """A Trainer whose `_run_step` can be called as often as one likes."""
    torch.manual_seed(0)
    model = args.build(VOCABULARY)
    optimizer = torch.optim.AdamW(model.parameter_groups(args.weight_decay), **args.adamw)
    return Trainer(model, data.StepLoader(text(args.block_size), args), optimizer, args)

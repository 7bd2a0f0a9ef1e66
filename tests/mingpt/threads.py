"""Train a GPT by ranks in threads: see tests/worlds.py."""

import contextlib
import io
import signal
import threading
from types import SimpleNamespace

import pytest
import torch

from mingpt import trainer
from mingpt.config import Config
from tests.mingpt.conftest import TINY
from tests.mingpt.texts import curve
from tests.worlds import world

_turn = threading.Lock()


def train(folder, text, size, start=None, script=trainer, nodes=1, **others):
    """Train by ranks in threads, without dropout, which would draw from one generator for all.

    `script` is the trainer's module, or one derived from it. Returns rank 0's checkpoint, its
    curves of validation and training, how many weights each rank holds, and what was printed.
    """
    folder.mkdir(exist_ok=True)
    where = {"data": str(text), "cache": str(folder / "data"), "precision": "fp32"}
    if start:
        torch.save(start, folder / "0.pt")

    def work(rank):
        path = str(folder / f"{rank}.pt")
        args = Config(**{**TINY, **where, "dropout": 0.0, "checkpoint_path": path, **others})
        dataset, model, optimizer = script.load_train_objs(args)
        loader = script.prepare_dataloader(dataset, args)
        script.Trainer(model, loader, optimizer, args).train(args.total_steps)
        held = (getattr(p, "_local_tensor", p) for p in model.parameters() if not p.is_meta)
        return sum(tensor.numel() for tensor in held)

    seed, build = torch.manual_seed, Config.build

    def built_alone(args, vocab_size):  # all threads draw from one generator
        with _turn:
            seed(args.seed)
            return build(args, vocab_size)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.setattr(signal, "signal", lambda *_: None)  # only a main thread may set a handler
        patch.setattr(torch, "manual_seed", lambda seed: None)
        patch.setattr(Config, "build", built_alone)
        held = world(size, work, nodes)
    return SimpleNamespace(
        checkpoint=torch.load(folder / "0.pt"),
        val=curve(folder, name="0"),
        train=curve(folder, "train_loss", name="0"),
        held=held,
        out=out.getvalue(),
    )

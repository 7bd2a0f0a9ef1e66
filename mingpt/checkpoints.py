"""Checkpoints of a GPT: written while training goes on, read back with care."""

import gc
import os
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict

import torch
import torch.distributed as dist

import guard
import utils
from guard import AWAY, UserError


class File:
    """The checkpoint of a run: read at its start, then written again and again in a thread.

    `shape` is the GPTConfig of the model, `dataset` what it learns: both are kept in the file.
    """

    def __init__(self, args, shape, dataset):
        self.path, self.args = args.checkpoint_path, args
        self.about = {"model_config": asdict(shape), "text": dataset.about}
        self._thread = ThreadPoolExecutor(1)
        guard.before_exit.append(self._thread.shutdown)  # completes the save under way
        self._last = None
        if args.compile:
            # A compiled model is part of a reference cycle, and keeps DDP's process group alive:
            # collect it when the trainer, the owner of both, is gone.
            weakref.finalize(self, gc.collect)

    def save(self, checkpoint):
        """Copy `checkpoint` to host memory, and write it while training goes on.

        Waits until the one before it is on the disk: two are never written at once. Raises
        UserError if the file system refused that one.
        """
        self.wait()
        checkpoint = _to_host({**checkpoint, **self.about}, {})
        self._last = self._thread.submit(utils.save_checkpoint, checkpoint, self.path)

    def wait(self):
        """Return when all is on the disk. Raises UserError if the file system refused it."""
        if self._last:
            self._last.result()

    def read(self):
        """The checkpoint to resume from; `{"steps_run": 0}` where there is no file.

        Only the first process of a node reads the weights, the others will get them from it: to
        them it is as if there were no file. All raise UserError for one of another model or another
        text: it would be overwritten.
        """
        if not os.path.lexists(self.path):
            return {"steps_run": 0}
        first = int(os.environ["LOCAL_RANK"]) == 0
        checkpoint = load(self.path, mmap=not first)
        (shape, text), (old_shape, old_text) = (
            (about["model_config"], about["text"]) for about in (self.about, checkpoint)
        )
        for name in ("kind", "vocabulary"):
            if old_text.get(name) != text.get(name):
                raise UserError(
                    f"{self.path} has a vocabulary of {old_shape['vocab_size']} tokens "
                    f"({old_text['kind']}), but that of this text is another, of "
                    f"{shape['vocab_size']} ({text['kind']}): {AWAY}"
                )
        _check_shape(self.path, old_shape, shape)
        if old_text["key"] != text["key"]:
            raise UserError(f"{self.path} was trained on another text: give that as --data, {AWAY}")
        return self._with_options(checkpoint) if first else {"steps_run": 0}

    def _with_options(self, checkpoint):
        """The options of this start count, not those of the one that saved."""
        if "optimizer" in checkpoint:
            groups = checkpoint["optimizer"]["param_groups"]
            groups[0]["weight_decay"] = self.args.weight_decay  # of the matrices
            for group in groups:
                group.update(self.args.adamw)
        # Without fp16 there was none, and a scaler refuses an empty state.
        scaler = checkpoint.get("scaler") or torch.amp.GradScaler("cpu").state_dict()
        return {**checkpoint, "scaler": scaler}


def check(path, shape, tokenizer):
    """Raise UserError if there is a file at `path` that is not of this `shape` and `tokenizer`.

    A glance, before any process waits for another: no weights are read. The size of the vocabulary
    does not count, which is known with the text only.
    """
    if os.path.lexists(path):
        checkpoint = load(path, mmap=True)
        old, kind = checkpoint["model_config"], checkpoint["text"].get("kind")
        _check_shape(path, old, {**asdict(shape), "vocab_size": old.get("vocab_size")})
        if kind != tokenizer:
            raise UserError(
                f"{path} has tokenizer {kind}, but {tokenizer} was asked for: ask for {kind}, "
                f"{AWAY}"
            )


def _check_shape(path, old, new):
    for name, value in new.items():
        if old.get(name) != value and name != "dropout":
            raise UserError(
                f"{path} has {name} {old.get(name)}, but {value} was asked for: ask for "
                f"{old.get(name)}, {AWAY}"
            )


def _to_host(part, done):
    """A copy that shares nothing with `part`, while tensors that were tied are tied again."""
    if isinstance(part, torch.Tensor):
        place = (part.data_ptr(), part.shape, part.stride(), part.dtype, part.device)
        if place not in done:
            done[place] = part.detach().to("cpu", copy=True)
        return done[place]
    if isinstance(part, dict):
        return {name: _to_host(value, done) for name, value in part.items()}
    if isinstance(part, list):
        return [_to_host(value, done) for value in part]
    return part


def rng_state(device):
    """The random state of this process: what dropout draws from."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device).get_rng_state()
    return states


def set_rng_state(states, device):
    """Restore what `rng_state` gave on this rank. A rank that was not there then keeps its own."""
    rank = dist.get_rank()
    if rank < len(states):
        torch.set_rng_state(states[rank]["cpu"])
        if device.type in states[rank] and device.type != "cpu":
            torch.get_device_module(device).set_rng_state(states[rank][device.type])


NAMES = {"steps_run", "model_config", "text"}


def load(path, **options):
    """A checkpoint of `mingpt`, in host memory. Raises UserError for any other file.

    `options` are those of torch.load.
    """
    if not os.path.lexists(path):
        raise UserError(f"no checkpoint {path}: train one, or pass its --checkpoint_path")
    checkpoint = utils.read(path, **options)
    if not (isinstance(checkpoint, dict) and NAMES.issubset(checkpoint)):
        raise UserError(f"{path} is not a checkpoint of mingpt: {AWAY}")
    return checkpoint

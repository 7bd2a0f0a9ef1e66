"""Watch random numbers: those that datasets draw, and those of the first steps' own lines."""

import contextlib
import functools
import json
import os
import random
import sys
import time

import _ddp_doctor as recorder
import torch
from _ddp_doctor import passes, seeds
from _ddp_doctor.fingerprints import captured, fingerprint, state_of
from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher as Fetcher

FETCHES = 3  # of each worker in each epoch
EPOCHS = 3
OBJECTS = 100  # in a dataset, in which to look for generators
STEPS = range(1, 8)  # after these, the functions are watched until the next step
KINDS = {
    "randn": "normal", "randn_like": "normal", "normal": "normal", "rand": "uniform",
    "rand_like": "uniform", "randint": "integer", "randint_like": "integer",
}  # fmt: skip

coming = None  # number and epoch of the loader whose iterator is being made
_watched = False  # whether torch's functions are
_plain = {}  # these functions, by name


def watch():
    Fetcher.fetch = _watch_fetch(Fetcher.fetch)


def _watch_fetch(fetch):
    @functools.wraps(fetch)
    def wrapped(self, indices):
        number = self.__dict__.get("_ddp_doctor", 0)
        if number >= FETCHES:
            return fetch(self, indices)
        self._ddp_doctor = number + 1
        before, seeded = _states(self.dataset), {**seeds.seeded}
        samples = fetch(self, indices)
        if seeds.seeded == seeded:  # else it draws what it has chosen
            _note_draws(self, number, before)
        return samples

    return wrapped


@recorder.guarded
def _states(dataset):
    return {name: state_of(generator) for name, generator in _generators(dataset)}


def _generators(dataset):
    """Those of the process, and those of a dataset, its transforms and their parts, by path."""
    kinds, numpy = [torch.Generator, random.Random], sys.modules.get("numpy")
    yield "torch", torch.default_generator
    yield "random", random._inst
    if numpy:
        kinds += numpy.random.Generator, numpy.random.RandomState
        yield "numpy", numpy.random.mtrand._rand
    found, seen = [("", dataset)], 0
    while found and seen < OBJECTS:
        (path, one), seen = found.pop(0), seen + 1
        for name, value in [*getattr(one, "__dict__", {}).items()]:
            for part in value if type(value) in (list, tuple) and len(value) < 20 else [value]:
                if isinstance(part, tuple(kinds)):
                    yield f"{path}{name}", part
                elif hasattr(part, "__dict__") and not isinstance(part, torch.Tensor | type):
                    found.append((f"{path}{name}.", part))


@recorder.guarded
def _note_draws(fetcher, number, before):
    from _ddp_doctor import loaders  # which imports this

    worker, after = get_worker_info(), _states(fetcher.dataset)
    drawn = {name: after[name] for name in after if before.get(name, after[name]) != after[name]}
    loader, nth = coming if worker and coming else loaders.epoch_of(fetcher)
    if drawn and loader is not None and nth < EPOCHS:
        own = {"loader": loader, "nth": nth, "n": number, "states": drawn}
        if not worker:
            recorder.fact("draws", worker=-1, **own)
            return
        own = {"kind": "draws", "t": time.monotonic(), "pid": os.getppid(), **own}
        line = json.dumps({**own, "worker": worker.id}) + "\n"
        with contextlib.suppress(OSError):  # a rank's file; a worker has none
            file = os.open(recorder.notes / f"{os.getppid()}.jsonl", os.O_WRONLY | os.O_APPEND)
            os.write(file, line.encode())
            os.close(file)


def note_step(made):
    """After step `made` of all: watch torch's functions in the next few, but never what dynamo may
    have compiled, which would be compiled again."""
    global _watched
    dynamo = sys.modules.get("torch._dynamo.utils")
    compiled = dynamo and dynamo.counters["frames"]
    wanted = made in STEPS and passes.is_one_of_several() and not compiled
    if wanted != _watched:
        _watched = wanted
        for name, kind in KINDS.items():
            plain = _plain.setdefault(name, getattr(torch, name))
            setattr(torch, name, _drawing(kind, plain) if wanted else plain)


def _drawing(kind, draw):
    @functools.wraps(draw)
    def drawing(*args, **kwargs):
        drawn = draw(*args, **kwargs)
        noted = _watched and recorder.is_recording() and not recorder.compiling()
        if noted and not captured(drawn):
            _note_drawn(kind, drawn, sys._getframe(1))
        return drawn

    return drawing


@recorder.guarded
def _note_drawn(kind, drawn, frame):
    """Not what a library draws: its dropout may be alike."""
    own = drawn.numel() > 1 and recorder.is_theirs(frame.f_code.co_filename)
    if own and recorder.count("drawn") <= 200:
        recorder.fact(
            "drawn", of=kind, step=recorder.counts["step"], inside=passes.calls.running,
            shape=[*drawn.shape], print=fingerprint(drawn), where=recorder.where(frame),
        )  # fmt: skip

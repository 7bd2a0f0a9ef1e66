"""Train by a lesson's script in this process. Its ranks are threads: see worlds.py."""

import threading
import types

import torch
import torch.distributed as dist

from tests.processes import LESSONS
from tests.worlds import world
from tools.series import stages

_seeded = threading.Lock()


def script(name, *changes):
    """The module of a lesson, or of a stage, with the pairs of `changes` replaced in its text."""
    text = stages.find(LESSONS, name).source.text
    for old, new in changes:
        assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    module = types.ModuleType(name)
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    return module


def train(lesson, folder, *epochs, size=2, nodes=1, batch=None, start=(), changes=()):
    """The checkpoint that each rank has saved, None if it saved none.

    `epochs` are the total and those between two saves. The global batch is 64, unless `batch` is
    that of a process. `start` has checkpoints to resume from, `{rank: checkpoint}`.
    """
    lesson = script(lesson, *changes) if isinstance(lesson, str) else lesson
    total, every = epochs if len(epochs) == 2 else epochs * 2
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{rank}.pt" for rank in range(size)]
    for rank, path in enumerate(paths):
        path.unlink(missing_ok=True)
        if rank in start:
            torch.save(start[rank], path)

    def work(rank):
        dataset, model, optimizer = lesson.load_train_objs()
        dist.barrier()
        with _seeded:  # all threads draw from one generator
            torch.manual_seed(0)
            model.reset_parameters()
        dist.barrier()
        data = lesson.prepare_dataloader(dataset, batch or 64 // size)
        trainer = lesson.Trainer(model, data, optimizer, every, str(paths[rank]))
        trainer.train(total)

    world(size, work, nodes)
    found = [torch.load(path) if path.exists() else None for path in paths]
    return [one if one and one["epochs_run"] == total else None for one in found]


def resumed(lesson, folder, first, total, size=2, **options):
    """The checkpoints of a run that ends after `first` epochs and is resumed up to `total`."""
    saved = train(lesson, folder, first, size=size, **options)
    start = dict.fromkeys(range(size), saved[0])
    return train(lesson, folder, total, first, size=size, start=start, **options)


def distance(one, other):
    """The largest difference between tensors of two checkpoints' models, or of two other parts."""
    one, other = (part.get("model", part) for part in (one, other))
    pairs = zip(_tensors(one), _tensors(other), strict=True)
    return max((mine - theirs).abs().max().item() for mine, theirs in pairs)


def _tensors(part):
    if isinstance(part, torch.Tensor):
        return [part]
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return [tensor for one in parts for tensor in _tensors(one)]

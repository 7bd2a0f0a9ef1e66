"""Watch seeds, and whether training gets random numbers again that it has had."""

import random
import sys
from collections import Counter

import _ddp_doctor as recorder
import torch
from _ddp_doctor import imports
from _ddp_doctor.fingerprints import state_of

MOST = 2000  # steps of an optimizer to look at
AGAIN = 2  # steps in a row that draw what an earlier step drew

seeded = Counter()  # how often a generator was seeded, by its name
_where = None  # the last of these calls
states = {}  # by optimizer


class States:
    """Those of the generators after each step of an optimizer."""

    def __init__(self):
        self.steps, self.last, self.again = {}, (None, None, None), 0


def watch():
    _watch(torch, "manual_seed")
    _watch(random, "seed")
    if module := sys.modules.get("numpy.random"):
        _watch(module, "seed")
    else:
        imports.after("numpy.random", lambda module: _watch(module, "seed"))


def _watch(module, name):
    """A spawned process may get the function, pickled as the place where it lies."""

    @recorder.guarded
    def note(*_, **__):
        global _where
        seeded[module.__name__] += 1
        _where = recorder.where() if recorder.is_recording() else None

    recorder.watch(module, name, note)
    getattr(module, name).__module__ = module.__name__
    getattr(module, name).__qualname__ = name


@recorder.guarded
def note_step(opt, n):
    """A step that draws moves the state. So does a loader that begins anew, which is none, and
    whoever seeds before each step knows what is drawn."""
    if n > MOST:
        return
    own, generators = states.setdefault(opt, States()), [torch.default_generator]
    if torch.cuda.default_generators and not torch.cuda.is_current_stream_capturing():
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    now = (*map(state_of, generators),)
    (before, *last), own.last = own.last, (now, recorder.counts.get("ended", 0), seeded.total())
    if last[1] != own.last[2]:
        own.again = 0
        return
    if (earlier := own.steps.setdefault(now, n)) == n:
        own.again = 0
    elif now != before and last[0] == own.last[1]:
        own.again += 1
        if own.again == AGAIN and recorder.count("rewound") == 1:
            recorder.fact("rewound", opt=opt, n=n, earlier=earlier, where=_where)

"""What the loaders of a run drew: views of the facts that the rules about data share."""

import array
from functools import cache


def loadings(run):
    """The first description of each loader, by rank's worker and the loader's number."""
    found = {}
    for worker in run.trained:
        for fact in worker.all("loading"):
            found.setdefault((worker, fact["loader"]), fact)
    return found


def epochs_of(worker, loader=None, training=True):
    """The iterations in which it trained, or only evaluated."""
    return [
        fact
        for fact in worker.all("epoch")
        if loader in (None, fact["loader"]) and fact["drawn"]
        if bool(fact["did"]["step"]) == training and (training or fact["did"]["evaluation"])
    ]


def loaders_of(run, training=True):
    return sorted({e["loader"] for w in run.trained for e in epochs_of(w, None, training)})


@cache
def _read(path):
    return array.array("q", path.read_bytes())


def indices_of(run, fact, key="file"):
    return _read(run.notes / fact[key]) if fact.get(key) else array.array("q")


def samples_of(run, loading, epoch):
    """The samples of an epoch, as indices of the whole dataset."""
    of = indices_of(run, loading, "subset")
    return {of[index] if of else index for index in indices_of(run, epoch)}

"""Watch DataLoaders: which samples each epoch draws, and what they are."""

import array
import collections
import dis
import functools
import itertools
import os
import re
import weakref
import zlib

import _ddp_doctor as recorder
from _ddp_doctor import draws, open_files, passes, samplers, sketches
from _ddp_doctor.fingerprints import fingerprint, tensors_in
from _ddp_doctor.sketches import length
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    default_collate,
)
from torch.utils.data.dataloader import _BaseDataLoaderIter as Iterator

MOST = 1_000_000  # indices of an epoch to write
EPOCHS = 20  # per loader to write
CONTENTS = 2048  # samples whose content is compared
DID = ("step", "forward", "evaluation")

_made = weakref.WeakKeyDictionary()  # the line that made a loader, or a Subset
_numbers = {}  # by id: a loader, its number; alike on all ranks, though one may have more
_bases = []  # datasets that are not Subsets; their position is their number
_epochs = {}  # that run, by the iterator's id
_sent = {}  # by loader with persistent workers: its iterator, plain attributes of their copy
_coming = []  # those whose iterator is being made, or a persistent one begins anew
_contents = 0
_fresh = set()  # the epochs whose batches came since then
_before = dict.fromkeys(DID, 0)  # what had been done until a batch came


class Epoch:
    """One iteration over a loader."""

    def __init__(self, loader, nth):
        self.loader, self.nth, self.where = loader, nth, recorder.where()
        self.iterator = lambda: None  # a weak reference
        self.note_moved = bool  # becomes a call of open_files
        self.indices, self.taken, self.whole = array.array("q"), 0, False
        self.coming = collections.deque()  # batches that were drawn and not yet taken
        self.did = dict.fromkeys(DID, 0)  # with its batches, or with others beside them
        self.backwards = -recorder.counts.get("backward", 0)

    def draw(self, batch):
        numbers = batch.tolist() if hasattr(batch, "tolist") else batch
        numbers = numbers if isinstance(numbers, list | tuple) else [numbers]
        numbers = [int(n) for n in numbers if isinstance(n, int) or hasattr(n, "__index__")]
        self.coming.append(numbers)
        if len(self.indices) < MOST:
            self.indices.extend(numbers)

    def end(self):
        name = f"{os.getpid()}.{self.loader}.{self.nth}.indices"
        if self.nth < EPOCHS:
            (recorder.notes / name).write_bytes(self.indices.tobytes())
        _settle()
        self.note_moved()
        backwards = self.backwards + recorder.counts.get("backward", 0)
        recorder.fact(
            "epoch", loader=self.loader, nth=self.nth, drawn=len(self.indices), taken=self.taken,
            whole=self.whole, order=zlib.crc32(self.indices), where=self.where, did=self.did,
            backwards=backwards, file=name if self.nth < EPOCHS else None,
        )  # fmt: skip


def watch():
    draws.watch()
    recorder.watch(DataLoader, "__init__", after=_note_made)
    recorder.watch(Subset, "__init__", after=_note_made)
    recorder.watch(DataLoader, "__iter__", _prepare, then=_begin, failed=_give_up, hides=False)
    recorder.watch(Iterator, "_next_index", then=_note_drawn, hides=False)
    recorder.watch(Iterator, "__next__", then=_note_taken, failed=_note_failed, hides=False)
    recorder.at_end.append(_end_all)


@recorder.guarded
def _note_made(made, *_, **__):
    _made[made] = recorder.where()


def _number_of(loader):
    if id(loader) not in _numbers:
        made = _made.get(loader)
        before = sum(_made.get(other) == made for other, _ in _numbers.values())
        _numbers[id(loader)] = loader, zlib.crc32(f"{made} {before}".encode())
    return _numbers[id(loader)][1]


@recorder.guarded
def _prepare(loader):
    """Its workers may start now, and draw the first batches. An earlier epoch has ended."""
    recorder.fact("loader")
    _coming.append(None)
    number = _number_of(loader)
    for key in [key for key, epoch in _epochs.items() if epoch.loader == number]:
        _epochs.pop(key).end()
    epoch = Epoch(number, recorder.count(f"iterations of loader {number}") - 1)
    draws.coming = number, epoch.nth
    if files := open_files.positions(loader):
        epoch.note_moved = functools.partial(
            open_files.note_moved, loader, files, number, _made.get(loader)
        )
    _coming[-1] = epoch


@recorder.guarded
def _give_up(loader, error):
    _coming.pop()


def epoch_of(fetcher):
    """The epoch in which the process itself fetches samples."""
    for epoch in _epochs.values():
        if getattr(epoch.iterator(), "_dataset_fetcher", None) is fetcher:
            return epoch.loader, epoch.nth
    return None, 0


@recorder.guarded
def _begin(iterator, loader):
    if (epoch := _coming.pop()) is None:  # an unhashable loader
        return
    if id(iterator) in _epochs:  # of another one that is gone
        _epochs.pop(id(iterator)).end()
    epoch.iterator, _epochs[id(iterator)] = weakref.ref(iterator), epoch
    _describe(loader, epoch)
    if loader.num_workers and loader.persistent_workers:
        _note_outdated(loader.dataset, epoch)


def _note_outdated(dataset, epoch):
    """Persistent workers keep the copy of the dataset with which they, and this iterator, began."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    plain, own = bool | int | float | str, getattr(dataset, "__dict__", {})
    now = {name: one for name, one in own.items() if isinstance(one, plain)}
    began, first = _sent.get(epoch.loader, (bool, now))
    if began() is not epoch.iterator():
        _sent[epoch.loader] = epoch.iterator, now
        return
    used = samplers.attributes(type(dataset), ("__getitem__", "__getitems__", "__iter__"))
    names = [one for one in now if one in used and now[one] != first.get(one, now[one])]
    if names and recorder.count("outdated") == 1:
        recorder.fact("outdated", loader=epoch.loader, nth=epoch.nth, where=epoch.where,
                      dataset=type(dataset).__name__, names=names)  # fmt: skip


def _describe(loader, epoch):
    sampler, dataset = samplers.distributed(loader), loader.dataset
    indices = cut = None
    while (part := _subset(dataset)) is not None:
        numbers, cut = [int(index) for index in part.indices], _made.get(part)
        indices = numbers if indices is None else [numbers[index] for index in indices]
        dataset = part.dataset
    subset = None
    if indices is not None and epoch.nth == 0:
        subset = f"{os.getpid()}.{epoch.loader}.subset"
        (recorder.notes / subset).write_bytes(array.array("q", indices).tobytes())
    base = next((n for n, one in enumerate(_bases) if one is dataset), len(_bases))
    _bases[base : base + 1] = [dataset]
    shared = isinstance(sampler, DistributedSampler)
    compares = epoch.nth == 0 and passes.is_one_of_several()

    def own(name, other=None):  # a subclass may lack some
        return getattr(sampler, name, None) if shared else other

    divides = not shared and passes.is_one_of_several() and samplers.divides(sampler)
    shuffles = getattr(sampler, "shuffle", 0) is True or isinstance(sampler, RandomSampler)
    recorder.fact(
        "loading", loader=epoch.loader, nth=epoch.nth, where=epoch.where, made=_made.get(loader),
        dataset=type(dataset).__name__, base=base, size=length(loader.dataset), subset=subset,
        iterable=_has_no_index(dataset, loader.collate_fn),
        lists=sketches.of_lists(dataset) if compares else {},
        orders=sketches.of_orders(dataset) if compares else {},
        sampler=type(sampler).__name__,
        replicas=own("num_replicas"), rank=own("rank"), seed=own("seed") if shuffles else None,
        divides=divides, shuffle=shuffles, cut=cut, draws=samplers.draws(loader),
        drop_last=own("drop_last", loader.drop_last),
        replacement=getattr(sampler, "replacement", False), epoch=getattr(sampler, "epoch", None),
        batch_size=loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
    )  # fmt: skip


def _has_no_index(dataset, collate):
    """Whether it draws each sample itself: its __getitem__ never reads the index, or puts another
    one in its place before. (One that does so later may try again after an error.)"""
    if isinstance(dataset, range):
        return collate is not default_collate  # which makes the samples, as a NeighborLoader's
    if isinstance(dataset, IterableDataset):
        return True
    code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
    if code is None or code.co_argcount < 2:
        return False
    uses = {}  # of the index, by line
    for step in dis.get_instructions(code):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        for use, name in zip(re.findall("LOAD|STORE", step.opname), names, strict=False):
            if name == code.co_varnames[1]:
                uses.setdefault(step.positions.lineno, set()).add(use)
    first, *others = [*uses.values(), set()]
    return first == {"STORE"} or not any("LOAD" in line for line in (first, *others))


def _subset(dataset):
    """The Subset that a dataset is, or that it transforms sample by sample."""
    inside = [dataset, *getattr(dataset, "__dict__", {}).values()]
    subsets = [part for part in inside if isinstance(part, Subset)]
    alone = len(subsets) == 1 and len(subsets[0]) == length(dataset)
    return subsets[0] if alone or isinstance(dataset, Subset) else None


def _settle():
    """What was done since batches came, was done with these."""
    now = {kind: recorder.counts.get(kind, 0) for kind in DID}
    if now != _before:
        alive = [e for e in _fresh if e.iterator() is not None]  # the others gave one batch to see
        for epoch, kind in itertools.product(alive or _fresh, DID):
            epoch.did[kind] += now[kind] - _before[kind]
        _fresh.clear()
        _before.update(now)


@recorder.guarded
def _note_drawn(batch, iterator):
    epoch = _epochs.get(id(iterator))
    if epoch is None or epoch.iterator() is not iterator:
        epoch = _coming[-1] if _coming else None
    if epoch:
        epoch.draw(batch)


@recorder.guarded
def _note_taken(batch, iterator):
    """Batches come in the order of their indices, whatever the number of workers."""
    global _contents
    epoch = _epochs.get(id(iterator))
    if epoch is None:
        return
    _settle()
    _fresh.add(epoch)
    passes.loader = epoch.loader
    epoch.taken += 1
    indices = epoch.coming.popleft() if epoch.coming else []
    if _contents >= CONTENTS or not recorder.due(epoch.taken):
        return
    rows = max(tensors_in(batch)[:4], key=lambda t: t.ndim > 1, default=None)  # no labels
    if rows is not None and rows.ndim > 0 and len(rows) == (len(indices) or len(rows)):
        _contents += len(rows)
        of = {"loader": epoch.loader, "nth": epoch.nth}
        if indices:
            recorder.fact("content", **of, indices=indices, rows=[*map(fingerprint, rows)])
        elif iterator._num_workers > 1 and rows.ndim > 1:  # not labels alone
            recorder.fact("yielded", **of, workers=iterator._num_workers, print=fingerprint(rows))


@recorder.guarded
def _note_failed(iterator, error):
    """It ends with StopIteration."""
    if not isinstance(error, StopIteration):
        return
    passes.loader = None
    recorder.count("ended")
    if epoch := _epochs.pop(id(iterator), None):
        epoch.whole = True
        epoch.end()


@recorder.guarded
def _end_all():
    while _epochs:
        _epochs.popitem()[1].end()
    _numbers.clear()
    _bases.clear()

"""Watch files that a dataset holds open, and several workers of a loader read."""

import io
import os
import tarfile
import zipfile

import _ddp_doctor as recorder
from torch.utils.data import Subset

OF_SYSTEM = io.FileIO | io.BufferedReader | io.BufferedRandom | io.TextIOWrapper


@recorder.guarded
def positions(loader):
    """Where each is read next, by attribute. Workers are forked, so all have this one position."""
    dataset = loader.dataset
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    own = getattr(dataset, "__dict__", {}) if loader.num_workers > 1 else {}
    files = {name: one for name, one in own.items() if isinstance(one, OF_SYSTEM)}
    files |= {name: one.fp for name, one in own.items() if isinstance(one, zipfile.ZipFile)}
    files |= {name: one.fileobj for name, one in own.items() if isinstance(one, tarfile.TarFile)}
    known = [(name, one) for name, one in files.items() if isinstance(one, OF_SYSTEM)]
    known = {name: one.fileno() for name, one in known if not one.closed and one.seekable()}
    return {name: os.lseek(number, 0, os.SEEK_CUR) for name, number in known.items()}


@recorder.guarded
def note_moved(loader, before, number, made):
    """The process that has the loader reads no samples: its workers have moved the position."""
    moved = [name for name, at in (positions(loader) or {}).items() if at != before.get(name, at)]
    if moved and recorder.count("read together") == 1:
        recorder.fact("together", loader=number, names=moved, workers=loader.num_workers, made=made)

"""Sketches of what a dataset lists for its samples, to see whether two ranks have the same ones."""

import contextlib
import os
import sys
import zlib

import _ddp_doctor as recorder
import torch
from torch.utils.data import Dataset

SKETCH = 8  # checksums
MOST = 100_000  # items; a tenth of a second
LARGE = 2**28  # bytes of an array


def of_lists(dataset, depth=2):
    """Of each list or array of mostly distinct items: the smallest checksums, and whether it has
    one item for each sample.

    They are equal for the same items in any order, and differ for two parts of one list.
    """
    found = {}
    for name, value in getattr(dataset, "__dict__", {}).items():
        if isinstance(value, Dataset) and depth:
            found |= {f"{name}.{key}": sketch for key, sketch in of_lists(value, depth - 1).items()}
        elif items := _items(value):
            prints = {zlib.crc32(text) for item in items if (text := _text(item))}
            if len(prints) > len(items) / 2 and not _are_positions(items):
                whole = len(items) == length(dataset)
                found[name] = {"whole": whole, "smallest": sorted(prints)[:SKETCH]}
    return found


def of_orders(dataset, depth=2):
    """Of what says which sample or label an index is, checksums of the items and of their order.

    A list with an item for each sample, a list of texts, a dict from texts to numbers. The order of
    a set, or of the files in a folder, may be another one in each process.
    """
    found, size, theirs = {}, length(dataset), _is_theirs(dataset)
    for name, value in getattr(dataset, "__dict__", {}).items():
        if depth and _is_theirs(value):
            found |= {f"{name}.{key}": one for key, one in of_orders(value, depth - 1).items()}
        elif isinstance(value, dict) and 1 < len(value) <= MOST:
            if theirs and all(type(k) is str and type(one) is int for k, one in value.items()):
                found[name] = _order([*map(value.get, sorted(value))], [*value])
        elif isinstance(value, list | tuple) and 1 < len(value) <= MOST:
            texts = [*map(_text, value)]
            named = all(type(item) is str for item in value)
            if None not in texts and len({*texts}) > len(texts) / 2 and len(value) == size:
                found[name] = [*_order(texts), True]
            elif theirs and named and len({*texts}) == len(texts):
                found[name] = _order(texts)
    return found


def _order(items, keys=()):
    return [zlib.crc32(repr(one).encode()) for one in ((sorted(items), sorted(keys)), items)]


def _is_theirs(value):
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return hasattr(value, "__dict__") and bool(file) and recorder.is_theirs(file)


def _items(value):
    """Only what is in memory: another sequence may read, or draw, each item when asked for it."""
    with contextlib.suppress(TypeError, RuntimeError):  # numpy has no such numbers, or no rows
        if isinstance(value, torch.Tensor) and value.nbytes <= LARGE:
            value = value.numpy(force=True)
        if _is_array(value) and value.nbytes <= LARGE:
            value = list(value)
    return value if isinstance(value, list | tuple) and 7 < len(value) <= MOST else None


def _is_array(value):
    return hasattr(type(value), "dtype") and hasattr(type(value), "tobytes")


def _are_positions(items):
    """0, 1, 2 … in any order: they name no sample, and are equal for the parts of two ranks."""
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # not numbers
        return sorted(items) == [*range(len(items))]
    return False


def _text(item):
    """Bytes that are equal for equal items: numbers, names, rows, and tuples of them."""
    if _is_array(item):
        return item.tobytes()
    if isinstance(item, list | tuple):
        parts = [_text(part) for part in item]
        return None if None in parts else b"|".join(parts)
    return repr(item).encode() if isinstance(item, str | int | float | os.PathLike) else None


def length(value):
    try:
        return len(value)
    except Exception:  # whatever a dataset without a length raises
        return None

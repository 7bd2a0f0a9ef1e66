"""Sketches of what a dataset lists for its samples, to see whether two ranks have the same ones."""

import contextlib
import os
import zlib

from torch.utils.data import Dataset

SKETCH = 8  # checksums
LARGE = 2**28  # bytes of an array


def of_lists(dataset, most, depth=2):
    """Of each list or array of mostly distinct items: the smallest checksums, and whether it has
    one item for each sample.

    They are equal for the same items in any order, and differ for two parts of one list.
    """
    found, length = {}, _length(dataset)
    for name, value in getattr(dataset, "__dict__", {}).items():
        if isinstance(value, Dataset) and depth:
            found |= {f"{name}.{key}": s for key, s in of_lists(value, most, depth - 1).items()}
        elif 7 < _length(value) < most and not isinstance(value, dict | set | str):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # no array of numbers
                prints = {zlib.crc32(text) for item in _items(value) if (text := _text(item))}
                if len(prints) > len(value) / 2:
                    whole = len(value) == length
                    found[name] = {"whole": whole, "smallest": sorted(prints)[:SKETCH]}
    return found


def _items(value):
    value = value.cpu().numpy() if hasattr(value, "cpu") else value
    return value if getattr(value, "nbytes", 0) < LARGE else ()


def _text(item):
    """Bytes that are equal for equal items: numbers, names, rows, and tuples of them."""
    if hasattr(item, "tobytes"):
        return item.tobytes()
    if isinstance(item, list | tuple):
        parts = [_text(part) for part in item]
        return None if None in parts else b"|".join(parts)
    return repr(item).encode() if isinstance(item, str | int | float | os.PathLike) else None


def _length(value):
    try:
        return len(value)
    except Exception:  # whatever a dataset without a length raises
        return -1

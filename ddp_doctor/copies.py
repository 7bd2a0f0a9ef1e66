"""Copies of the user's folder, for runs that must not change it."""

import contextlib
import os
import shutil
from pathlib import Path

LARGE = 10_000_000  # bytes; a larger file is linked
MANY = 2_000  # files; a folder with more is linked
LEFT_OUT = {".git", ".venv", "venv", "__pycache__", "node_modules", ".pytest_cache"}


def copy(folder: Path, target: Path) -> list[Path]:
    """Copy the folder. Returns what is linked instead, because it is large: the probe lets no
    process write there."""
    linked = []
    target.mkdir(parents=True)
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        here, there = Path(entry.path), target / entry.name
        if entry.name in LEFT_OUT:
            continue
        with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
            if entry.is_dir() and not entry.is_symlink() and not _is_large(here):
                linked += copy(here, there)
            elif entry.is_file() and entry.stat().st_size <= LARGE:
                shutil.copy2(here, there)
            elif entry.is_file() or entry.is_dir():
                there.symlink_to(here.resolve())
                linked.append(here.resolve())
    return linked


def _is_large(folder):
    files = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            files += 1
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
            if files > MANY or size > 20 * LARGE:
                return True
    return False

"""Copies of the user's folder, for runs that must not change it."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

LARGE = 10_000_000  # bytes; a larger file is linked
MANY = 2_000  # files; a folder with more is linked
LEFT_OUT = {".git", ".venv", "venv", "__pycache__", "node_modules", ".pytest_cache"}


def copy(folder: Path, target: Path) -> list[Path]:
    """Copy the folder. Returns what is linked instead, because it is large: the probe lets no
    process write there."""
    linked = []
    target.mkdir(parents=True)
    for here in sorted(folder.iterdir()):
        if here.name not in LEFT_OUT:
            linked += _copy(here, target / here.name)
    return linked


def share_repository(folder: Path, target: Path):
    """Give a copy of the folder its commit: a script may ask git. Objects are shared, so only read.

    The repository may be that of a folder above.
    """
    with contextlib.suppress(OSError):  # there is no git, or it refuses
        if root := _git("rev-parse", "--show-toplevel", cwd=folder):
            place = target if Path(root) == folder.resolve() else target.parent
            _git("clone", "-q", "--shared", "--no-checkout", root, ".clone", cwd=place)
            (place / ".clone" / ".git").rename(place / ".git")
            (place / ".clone").rmdir()
            _git("reset", "-q", cwd=place)


def _git(*words, cwd):
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True)
    return done.stdout.strip()


def _copy(here, there):
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
        if here.is_dir() and not here.is_symlink() and not _is_large(here):
            return copy(here, there)
        if here.is_file() and here.stat().st_size <= LARGE:
            shutil.copy2(here, there)
        elif here.is_file() or here.is_dir():
            there.symlink_to(here.resolve())
            return [here.resolve()]
    return []


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

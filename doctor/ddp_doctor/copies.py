"""Copies of the user's folder, for runs that must not change it."""

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LARGE = 10_000_000  # bytes; a larger file is linked
MANY = 2_000  # files; a folder with more is linked
LINKED = {".venv", "venv", "node_modules"}  # the command may begin with a Python there
BESIDE = re.compile(r"\.\./([\w.-]*\w)")  # ../data
TEXTS = (".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg")
LEFT_OUT = {".git", "__pycache__", ".pytest_cache"}


@dataclass(frozen=True)
class Copy:
    """A copy of `root`, which is the user's folder or the repository around it."""

    root: Path
    top: Path
    place: Path  # the copy of the user's folder
    linked: list[Path]  # large: the probe lets no process write there

    def moved(self, text: str) -> str:
        """A word or a list of paths, with each path below the root as one of the copy."""
        here = rf"(?<![\w./-]){re.escape(str(self.root))}(?![\w.-])"
        return re.sub(here, lambda _: str(self.top), text)


def copy(folder: Path, parent: Path, command: list[str] = ()) -> Copy:
    """Copy the folder, the repository around it, whose files a script may import, and what the
    command or these files name beside that."""
    repository = repository_of(folder)
    root = repository or folder
    top = parent / root.name
    linked = _copy(root, top, folder)
    for beside in _named_beside(root, top, command):
        linked += _copy(beside, parent / beside.name, folder)
    if repository:
        _share(root, top)
    return Copy(root, top, top / folder.relative_to(root), linked)


def _named_beside(root, top, command):
    texts = [*command]
    for place, _, names in os.walk(top):
        for path in [Path(place, name) for name in names if name.endswith(TEXTS)]:
            with contextlib.suppress(OSError):
                texts.append(path.read_text(errors="replace"))
    names = {name for text in texts for name in BESIDE.findall(text)} - {root.name}
    return [path for name in sorted(names) if (path := root.parent / name).exists()]


def repository_of(folder: Path) -> Path | None:
    """The root of the git repository that the folder is in; not one of all that a user has."""
    with contextlib.suppress(OSError):  # there is no git
        root = _git("rev-parse", "--show-toplevel", cwd=folder)
        if root and not Path.home().is_relative_to(root):
            return Path(root)
    return None


def _share(root, target):
    """Give a copy its commit: a script may ask git. The objects are shared, so only read."""
    _git("clone", "-q", "--shared", "--no-checkout", root, ".clone", cwd=target)
    with contextlib.suppress(OSError):  # git refuses
        (target / ".clone" / ".git").rename(target / ".git")
        (target / ".clone").rmdir()
        _git("reset", "-q", cwd=target)


def _git(*words, cwd):
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True)
    return done.stdout.strip()


def _copy(here, there, folder):
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
        linked = here.is_symlink() or here.name in LINKED or _is_large(here)
        if here.is_dir() and (folder.is_relative_to(here) or not linked):
            there.mkdir(parents=True)
            every = sorted(here.iterdir())
            inside = [p for p in every if p.name not in LEFT_OUT or folder.is_relative_to(p)]
            own = [p for p in inside if p.name.startswith("ddp-doctor-")]  # TMPDIR may be in it
            inside = [p for p in inside if p not in own or not there.is_relative_to(p)]
            return [path for one in inside for path in _copy(one, there / one.name, folder)]
        if here.is_file() and here.stat().st_size <= LARGE:
            shutil.copy2(here, there)
        elif here.is_file() or here.is_dir():
            there.symlink_to(here.resolve())
            return [here.resolve()]
    return []


def _is_large(folder):
    size, files = 0, (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    for number, path in enumerate(files, 1):
        with contextlib.suppress(OSError):
            size += path.lstat().st_size
        if number > MANY or size > 20 * LARGE:
            return True
    return False

"""A change in one script, merged into all its descendants.

Each child is merged with `git merge-file`: the base is its parent as committed, on one side stands
the child as it is in the working tree, on the other the parent as it is now. Everything is merged
before anything is written.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from tools.errors import UserError
from tools.files import write_all

from .model import Lesson, Series

_MARKER = 90  # length of git's conflict markers: longer than any line of a lesson


@dataclass(frozen=True)
class Merge:
    """What a child becomes. If it has conflicts, `new` is of no use."""

    lesson: Lesson
    old: bytes
    new: bytes
    conflicts: list[str]  # the lines of the working tree's version that are in conflict: "12-14"

    def summary(self) -> str:
        """Such as `multigpu.py: +1 -1`."""
        old, new = self.old.splitlines(), self.new.splitlines()
        added = removed = 0
        for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if tag != "equal":
                added, removed = added + j2 - j1, removed + i2 - i1
        return f"{self.lesson.file}: +{added} -{removed}"


def plan(series: Series, lesson: Lesson, by_hand: list[Lesson] = ()) -> list[Merge]:
    """The merges that carry the working tree's version of `lesson` to its descendants.

    Listed are those that change a file, and those in conflict; below a conflict nothing is merged.
    Descendants in `by_hand` have the change already and are taken as they are. Raises UserError
    if git fails, `lesson` is not committed, or a script cannot be read.
    """
    old, new = {lesson: _committed(lesson)}, {lesson: _read(lesson)}
    if old[lesson] is None:
        raise UserError(f"git has no {lesson.file} at HEAD to compare with: commit it first")
    merges = []
    for child in series:  # parents come first
        if child.parent not in new:
            continue
        ours, base = _read(child), _committed(child)
        # A lesson that was never committed derives, like its children, from what is there now.
        old[child] = ours if base is None else base
        if child in by_hand:
            new[child] = ours
            continue
        merged, conflicts = _merge(ours, old[child.parent], new[child.parent])
        if merged != ours:
            merges.append(Merge(child, ours, merged, conflicts))
        if not conflicts:
            new[child] = merged
    return merges


def write(merges: list[Merge]):
    """Replace the files, all or, if the disk is full, none. Raises OSError."""
    files = [merge.lesson.root / merge.lesson.file for merge in merges]
    targets = [file.resolve() for file in files]  # through links, not over
    write_all(dict(zip(targets, (merge.new for merge in merges), strict=True)))


def _merge(ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, list[str]]:
    """The merged text, and the line ranges of `ours` that are in conflict."""
    texts = [*_with_what_is_shared(ours, base, theirs), theirs]
    with tempfile.TemporaryDirectory() as folder:
        names = ["ours", "base", "theirs"]
        for name, content in zip(names, texts, strict=True):
            Path(folder, name).write_bytes(content)
        style = "merge.conflictStyle=merge"  # whatever the user has set, _conflicts reads this one
        size = f"--marker-size={_MARKER}"
        result = _git("-c", style, "merge-file", "-p", size, *names, cwd=folder)
    if result.returncode not in range(128):  # that many conflicts; more than 127 is an error
        raise UserError(f"git merge-file failed: {result.stderr.decode().strip()}")
    return result.stdout, _conflicts(result.stdout, ours) if result.returncode else []


def _with_what_is_shared(ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    """`ours` and `base`, with what `theirs` makes of lines that both have.

    git would call it a conflict if `ours` has changed the line beside such a line.
    """
    ours, base, theirs = (text.splitlines(keepends=True) for text in (ours, base, theirs))
    shared = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    changes = SequenceMatcher(None, base, theirs, autojunk=False).get_opcodes()
    for _, start, stop, new_start, new_stop in reversed(changes):  # so that what is above stays put
        for block in shared:
            if start < stop and block.a <= start and stop <= block.a + block.size:
                at = slice(start + block.b - block.a, stop + block.b - block.a)
                ours[at] = base[start:stop] = theirs[new_start:new_stop]
    return b"".join(ours), b"".join(base)


def _conflicts(merged: bytes, ours: bytes) -> list[str]:
    """Where the conflicts of `merged` lie in `ours`, which has neither markers nor clean merges."""
    kept, spans, side = [], [], "both"
    for line in merged.splitlines():
        if line.startswith(b"<" * _MARKER):
            side, start = "ours", len(kept)
        elif line == b"=" * _MARKER:
            side = "theirs"
        elif line.startswith(b">" * _MARKER):
            side = "both"
            spans.append((start, len(kept)))
        elif side != "theirs":
            kept.append(line)
    matcher = SequenceMatcher(None, kept, ours.splitlines(), autojunk=False)
    places = []
    for start, stop in spans:
        # The line is in both texts: it has moved as far as the matching block that it is in.
        block = next(b for b in matcher.get_matching_blocks() if start < b.a + b.size or not b.size)
        first = start + block.b - block.a + 1
        places.append(f"{first}-{first + stop - start - 1}" if stop > start + 1 else f"{first}")
    return places


def _read(lesson: Lesson) -> bytes:
    try:
        return (lesson.root / lesson.file).read_bytes()
    except OSError as error:
        raise UserError(f"{lesson.file} cannot be read: {error.strerror}") from None


def _committed(lesson: Lesson) -> bytes | None:
    """The file at HEAD, None if it is not there."""
    result = _git("show", f"HEAD:./{lesson.file}", cwd=lesson.root)
    return None if result.returncode else result.stdout


def _git(*arguments: str, cwd) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("sync needs git, which is not installed: install it") from None

"""A change in one script, merged into all its descendants.

`git merge-file` merges each child: the base is its parent as committed, one side is the child in
the working tree, the other is the parent as it is now. Everything is merged before any file is
written.
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from tools.errors import UserError
from tools.files import write_whole

from .model import Lesson, Series

# As git writes it; its markers are longer than any line of a lesson.
_CONFLICT = re.compile(r"(?ms)^<{90} ours\n(.*?)^={90}\n(.*?)^>{90} theirs\n")


@dataclass(frozen=True)
class Merge:
    """What a child becomes. If it has conflicts, `new` is not usable."""

    lesson: Lesson
    new: bytes
    conflicts: list[str]  # both sides of each, as git prints them


def plan(series: Series, lesson: Lesson, by_hand: list[Lesson] = ()) -> list[Merge]:
    """The merges that carry the working tree's version of `lesson` to its descendants.

    Returns those that change a file, and those in conflict. Below a conflict nothing is merged.
    Descendants in `by_hand` have the change already, and stay as they are. Raises UserError
    if git fails or `lesson` is not committed, OSError if a script cannot be read.
    """
    old, new = {lesson: _committed(lesson)}, {lesson: _present(lesson)}
    if old[lesson] is None:
        raise UserError(f"git has no {lesson.file} at HEAD to compare with: commit it first")
    merges = []
    for child in series:  # parents come first
        if child.parent not in new:
            continue
        ours, base = _present(child), _committed(child)
        # A lesson that was never committed derives, like its children, from what is there now.
        old[child] = ours if base is None else base
        if child in by_hand:
            new[child] = ours
            continue
        merged, conflicts = _merge(ours, old[child.parent], new[child.parent])
        if merged != ours:
            merges.append(Merge(child, merged, conflicts))
        if not conflicts:
            new[child] = merged
    return merges


def write(merge: Merge):
    """Replace the file. Raises OSError."""
    write_whole(merge.lesson.root / merge.lesson.file, merge.new)


def _merge(ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, list[str]]:
    """The merged text, and its conflicts."""
    texts = [*_with_what_is_shared(ours, base, theirs), theirs]
    with tempfile.TemporaryDirectory() as folder:
        names = ["ours", "base", "theirs"]
        for name, content in zip(names, texts, strict=True):
            Path(folder, name).write_bytes(content)
        style = "merge.conflictStyle=merge"  # whatever the user has set, _CONFLICT expects this one
        result = _git("-c", style, "merge-file", "-p", "--marker-size=90", *names, cwd=folder)
    if result.returncode not in range(128):  # that many conflicts; more than 127 is an error
        raise UserError(f"git merge-file failed: {result.stderr.decode().strip()}")
    found = _CONFLICT.findall(result.stdout.decode()) if result.returncode else []
    return result.stdout, [f"it has\n{mine}its parent has\n{other}" for mine, other in found]


def _with_what_is_shared(ours: bytes, base: bytes, theirs: bytes) -> tuple[bytes, bytes]:
    """`ours` and `base`, with the changes of `theirs` to lines that both have.

    Otherwise git reports a conflict if `ours` has changed the line beside such a line.
    """
    ours, base, theirs = (text.splitlines(keepends=True) for text in (ours, base, theirs))
    shared = SequenceMatcher(None, base, ours, autojunk=False).get_matching_blocks()
    changes = SequenceMatcher(None, base, theirs, autojunk=False).get_opcodes()
    for _, start, stop, new_start, new_stop in reversed(changes):  # keeps earlier indices valid
        for block in shared:
            if start < stop and block.a <= start and stop <= block.a + block.size:
                at = slice(start + block.b - block.a, stop + block.b - block.a)
                ours[at] = base[start:stop] = theirs[new_start:new_stop]
    return b"".join(ours), b"".join(base)


def _present(lesson: Lesson) -> bytes:
    return (lesson.root / lesson.file).read_bytes()


def _committed(lesson: Lesson) -> bytes | None:
    """The file at HEAD, None if it is not there."""
    result = _git("show", f"HEAD:./{lesson.file}", cwd=lesson.root)
    return None if result.returncode else result.stdout


def _git(*arguments: str, cwd) -> subprocess.CompletedProcess:
    return subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, check=False)

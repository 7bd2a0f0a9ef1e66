"""Which files are the project's own, and how to write one atomically."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

TEXT = {"", ".css", ".html", ".js", ".json", ".jsonl", ".md", ".py", ".rst", ".sh", ".svg", ".toml",
        ".txt", ".yaml"}  # fmt: skip


def own(root: Path) -> Callable[[Path], bool]:
    """A function that returns whether a path below `root` is a file of the project. Other files in
    the tree must not matter: checkpoints, an editor's backups, your scratch.py or environment.

    These are the files that git tracks, so a new one counts after `git add`. If git tracks nothing
    (an unpacked archive, no git), text files count unless they are hidden.
    """
    # In a hook, git's variables name the hook's repository, which may be another one.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, env=plain, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        listing = b""
    tracked = {Path(root, os.fsdecode(name)) for name in listing.split(b"\0")[:-1]}

    def is_own(path):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        known = path in tracked if tracked else path.suffix in TEXT and not hidden
        return known and path.is_file()

    return is_own


def write_whole(target: Path, content: bytes):
    """Write or replace a file. A concurrent reader of `target` finds the old or the new content.

    Raises OSError if the file system refuses; then `target` is unchanged.
    """
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
    try:
        fresh.write_bytes(content)
        if target.exists():
            shutil.copymode(target, fresh)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)

"""Files that are there whole or not at all."""

import os
import shutil
import uuid
from pathlib import Path


def write_whole(target: Path, content: bytes):
    """Write or replace a file: who reads `target` meanwhile finds the old or the new content."""
    write_all({target: content})


def write_all(contents: dict[Path, bytes]):
    """Write or replace files. All are first written beside their targets, so that a full disk
    stops this before the first is replaced. Raises OSError if the file system refuses."""
    staged = []
    try:
        for target, content in contents.items():
            fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
            staged.append((fresh, target))
            fresh.write_bytes(content)
            if target.exists():
                shutil.copymode(target, fresh)
        while staged:
            os.replace(*staged[0])
            staged.pop(0)
    finally:
        for fresh, _ in staged:
            fresh.unlink(missing_ok=True)

"""Write files atomically."""

import os
import shutil
import uuid
from pathlib import Path


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

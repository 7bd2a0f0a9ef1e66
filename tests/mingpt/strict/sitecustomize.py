"""The tests' Pythons run this first. At exit, it reports process groups that still exist."""

import atexit
import contextlib
import gc
import sys
import time
from pathlib import Path

gc.disable()  # it could free the group in time, and hide the reference that keeps it
gc.enable = lambda: None


def threads():
    found = []
    for file in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(file.read_text().strip())
    return [name for name in found if "gloo" in name]


@atexit.register
def look():
    end = time.monotonic() + 1
    while left := threads():
        if time.monotonic() > end:
            sys.stderr.write(f"threads of a process group are left: {left}\n")
            break
        time.sleep(0.02)

"""A dataclass as a command line, by tyro; what is wrong with it is said in one line, once."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

import tyro

from utils import Mistake

RULE = "─" * 3


def parse(kind, args, default, about):
    """The options `args` of the dataclass `kind`, those of `default` where they are not given.

    `--help` prints `about` and a line for each field, and ends the program. Raises Mistake.
    """
    first = os.environ.get("RANK", "0") == "0"  # one of the processes is enough to tell
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind, args=args, default=default, description=about, use_underscores=True,
                console_outputs=first, prog=f"python -m mingpt.{Path(sys.argv[0]).stem}",
            )  # fmt: skip
    except SystemExit as ended:
        if not ended.code:
            raise
    raise Mistake(f"{_sentence(errors.getvalue()) or 'wrong options'} (--help shows what there is)")


def _sentence(box):
    """What tyro's framed message says, on one line, with the option that it thinks was meant."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:-1]]
    ends = [i for i, line in enumerate(lines) if line.startswith(RULE)] or [len(lines)]
    said = " ".join(lines[: ends[0]])
    meant = re.search(r"Perhaps you meant:\s*[│\s]*(--\w+)", box)
    return said[:1].lower() + said[1:] + (f": the nearest is {meant[1]}" if meant else "")

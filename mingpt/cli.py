"""Turn a dataclass into a command line, with tyro. Errors are one line, from one process."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

import tyro

from guard import UserError

RULES = ("───", "---")  # tyro draws frames around messages, in ASCII on simple terminals


def parse(kind, args, default, about):
    """Parse the words `args` into the dataclass `kind`; `default` has the other fields.

    `--help` prints `about` and a line per field, and ends the program. Raises UserError.
    """
    first = os.environ.get("RANK", "0") == "0"  # only rank 0 prints the help
    out, errors = sys.stdout if first else io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind, args=args, default=default, description=about, use_underscores=True,
                prog=f"python -m mingpt.{Path(sys.argv[0]).stem}",
            )
    except SystemExit as ended:
        if not ended.code:
            raise
    raise UserError(f"{_sentence(errors.getvalue()) or 'wrong options'} (--help lists the options)")


def _sentence(box):
    """The text of tyro's framed message on one line, with the option that it suggests."""
    lines = [line.strip("│ ") for line in box.splitlines()[1:-1]]
    if lines and lines[0].startswith(RULES):
        del lines[0]
    ends = [i for i, line in enumerate(lines) if line.startswith(RULES)] or [len(lines)]
    said = " ".join(lines[: ends[0]])
    meant = re.search(r"Perhaps you meant:\s*[│\s]*(--\w+)", box)
    return said[:1].lower() + said[1:] + (f": the nearest is {meant[1]}" if meant else "")

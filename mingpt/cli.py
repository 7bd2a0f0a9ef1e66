"""Turn a dataclass into a command line, with tyro. Errors are one line, from one process."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

import tyro

from guard import UserError


def parse(kind, args, default, about):
    """Parse the words `args` into the dataclass `kind`; `default` has the other fields.

    `--help` prints `about` and a line per field, and ends the program. Raises UserError.
    """
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            return tyro.cli(
                kind, args=args, default=default, description=about, use_underscores=True,
                prog=f"python -m mingpt.{Path(sys.argv[0]).stem}",
                console_outputs=os.environ.get("RANK", "0") == "0" or "--help" not in args,
            )
    except SystemExit as ended:
        if not ended.code:
            raise
    _, message, *others = re.split("[─-]{3,}", errors.getvalue())  # tyro draws frames around it
    said = " ".join(line.strip("╮+│| ") for line in message.splitlines()).strip()
    nearest = re.search(r"Perhaps you meant:[│|\s]*(--\w+)", "".join(others))
    advice = f": the nearest is {nearest[1]}" if nearest else ""
    raise UserError(f"{said[:1].lower()}{said[1:]}{advice} (--help lists the options)")

"""python -m tools.pages: what keeps prose, site and files in step."""

import argparse
import sys
from pathlib import Path

from tools.series import SeriesError

from . import site
from .confirm import confirm


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0; 1 if it found something wrong; 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    what = "after reading it again: the prose fits the lines of an edit, of a lesson, or of all"
    sub = commands.add_parser("confirm", help=what, description=what)
    sub.add_argument("lesson", nargs="?")
    sub.add_argument("edit", nargs="?")
    what = "the finished site: links, what it loads, pictures without words, weight"
    sub = commands.add_parser("check", help=what, description=what)
    sub.add_argument("folder", nargs="?", type=Path, default=Path("docs/_build/html"))
    options = parser.parse_args(arguments)
    if options.command == "check":
        problems, figures = site.check(options.folder)
        print("\n".join([*map(str, problems), figures]))
        return 1 if problems else 0
    try:
        changed = confirm(options.lesson, options.edit)
    except SeriesError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(changed) or "nothing has changed since it was confirmed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

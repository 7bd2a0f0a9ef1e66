"""python -m tools.pages: confirm that the prose of an edit says what its lines do now."""

import argparse
import sys

from tools.series import SeriesError

from .confirm import confirm


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0, or 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    what = "after reading it again: the prose fits the lines of an edit, of a lesson, or of all"
    sub = commands.add_parser("confirm", help=what, description=what)
    sub.add_argument("lesson", nargs="?")
    sub.add_argument("edit", nargs="?")
    options = parser.parse_args(arguments)
    try:
        changed = confirm(options.lesson, options.edit)
    except SeriesError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(changed) or "nothing has changed since it was confirmed")
    return 0


if __name__ == "__main__":
    sys.exit(main())

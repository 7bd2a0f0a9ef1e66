"""python -m tools.pages: keep the prose in step with the lines that it explains."""

import argparse
import sys

from tools.errors import exit_status

from .confirm import confirm


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0, or 2 if it could not run."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    what = "record that you read the prose again: it fits the lines of an edit, a lesson or all"
    sub = commands.add_parser("confirm", help=what, description=what)
    sub.add_argument("lesson", nargs="?")
    sub.add_argument("edit", nargs="?")
    options = parser.parse_args(arguments)
    return exit_status(lambda: _confirm(options))


def _confirm(options):
    changed = confirm(options.lesson, options.edit)
    print("\n".join(changed) or "nothing has changed since it was confirmed")


if __name__ == "__main__":
    sys.exit(main())

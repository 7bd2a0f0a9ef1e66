"""python -m tools.pages: build the site, record its commands, keep prose in step with code."""

import argparse
import sys

from tools.errors import exit_status

from .build import build
from .confirm import confirm
from .record import record


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0, or 1 if a command is not as its page says, or 2 if it could not."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    what = "record that you read the prose again: it fits the lines of an edit, a lesson or all"
    sub = commands.add_parser("confirm", help=what, description=what)
    sub.set_defaults(run=_confirm)
    sub.add_argument("lesson", nargs="?")
    sub.add_argument("edit", nargs="?")
    what = "build the site in docs/_build/html from the pages and the recordings"
    commands.add_parser("build", help=what, description=what).set_defaults(run=build)
    what = "run the commands of the pages and record what they print"
    sub = commands.add_parser("record", help=what, description=what)
    sub.set_defaults(run=record)
    which = sub.add_mutually_exclusive_group()
    which.add_argument("pages", nargs="*", metavar="PAGE", default=[], help="all commands of these")
    which.add_argument("--stale", action="store_true", help="what does not hold; the default")
    which.add_argument("--all", action="store_true", help="all commands of all pages")
    which.add_argument("--some", metavar="COMMIT", help="with --check: what CI runs of a commit")
    sub.add_argument("--check", action="store_true", help="run them, compare, write nothing")
    sub.add_argument(
        "--elsewhere", action="store_true", help="instead, what needs a GPU or a long time"
    )
    options = parser.parse_args(arguments)
    return exit_status(lambda: options.run(options))


def _confirm(options):
    changed = confirm(options.lesson, options.edit)
    print("\n".join(changed) or "nothing has changed since it was confirmed")


if __name__ == "__main__":
    sys.exit(main())

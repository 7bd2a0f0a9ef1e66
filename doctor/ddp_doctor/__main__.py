"""ddp-doctor [OPTIONS] -- COMMAND: run a training command, and say what is wrong with it.
ddp-doctor explain RULE: say more about a rule, with the fix.

The command's output is shown as it comes; the report follows on stderr. The exit status is the
command's own if that is not 0; else 1 if there are errors; 2 if it could not run; 130 after Ctrl-C.
A run that --limit ends counts as 0; one that made no step, or stood still, is an error.
"""

import argparse
import functools
import json
import shutil
import signal
import sys
from pathlib import Path

from . import explanations, report
from .diagnosis import Mistake, diagnosed
from .rule import RULES


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Mistake(message)  # one line, without the usage


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status, and never a traceback for a mistake of the user's."""
    try:
        options = _parser().parse_args(arguments)
        if options.command == "explain":
            print(explanations.of(options.words))
            return 0
        return diagnose(options, [options.command, *options.words])
    except (Mistake, OSError) as error:
        print(f"ddp-doctor: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nddp-doctor: interrupted; all that the command started has ended", file=sys.stderr)
        return 130


def _parser():
    parser = Parser(
        prog="ddp-doctor", usage="ddp-doctor [OPTIONS] -- COMMAND", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    add = parser.add_argument
    add("--cpu", type=_positive, metavar="N", help="run a CUDA script on N CPU processes")
    plans = parser.add_mutually_exclusive_group()
    for name, text in (
        ("restart", "kill a rank after a save, and compare"),
        ("parity", "compare with one process and a larger batch"),
    ):
        plans.add_argument(f"--{name}", dest="plan", action="store_const", const=name, help=text)
    plans.add_argument("--nodes", choices=["2"], help="run it as two nodes with one process each")
    add("--limit", type=float, default=300, metavar="SECONDS", help="end it then; default: 300")
    add("--json", type=Path, metavar="FILE", help="write the findings to FILE, too")
    names, text = sorted(one.name for one in RULES), "may be given several times"
    add("--ignore", action="append", default=[], metavar="RULE", choices=names, help=text)
    add("--all", action="store_true", help="show each finding whole")
    add("command", metavar="COMMAND", help=argparse.SUPPRESS)
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS).required = False
    return parser


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def diagnose(options, command: list[str]) -> int:
    """Run the command, examine it and print the report. Returns the exit status."""
    if shutil.which(command[0]) is None:
        raise Mistake(f"cannot run {command[0]!r}: no such command")
    if options.json:
        options.json.write_text("")  # rather fail now than at the end
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    own = {"limit": options.limit, "cpu": options.cpu, "ignored": frozenset(options.ignore)}
    plan = "nodes" if options.nodes else options.plan or "once"
    say = functools.partial(print, "── ddp-doctor:", file=sys.stderr, flush=True)
    with diagnosed(command, plan, say=say, **own) as one:
        report.write(one, options.all)
        if options.json:
            options.json.write_text(json.dumps(report.as_json(one), indent=2) + "\n")
        if one.interrupted:
            return 128 + signal.SIGINT
        status = one.run.status or 0
        if status and not one.run.first("hung", "late"):
            return status if status > 0 else 128 - status
        return int(any(finding.rule.severity == "error" for finding in one.findings))


if __name__ == "__main__":
    sys.exit(main())

"""python -m tools.series: check the lessons, show how they differ, carry a change down the tree."""

import argparse
import os
import sys
from pathlib import Path

from . import lint, render, sync
from .manifest import load
from .model import Series
from .source import SeriesError


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0, or 1 if lint or sync found something, or 2 if it could not run."""
    options = _parser().parse_args(arguments)
    linting = options.command is _lint
    try:
        status = options.command(load(options.root), options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (SeriesError, OSError) as error:  # OSError: no README, a full disk
        print(error, file=sys.stdout if linting else sys.stderr)
        return 1 if linting else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.series", description=__doc__)
    parser.add_argument(
        "--root", type=Path, help="folder of lessons.toml; default: this repository"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, command, what):
        sub = commands.add_parser(name, help=what, description=what)
        sub.set_defaults(command=command)
        return sub

    add("lint", _lint, "check the rules of the series; exit 1 if one is broken")
    sub = add("diff", _diff, "show what a lesson changes in its parent, edit by edit")
    sub.add_argument("lesson")
    sub.add_argument("--edit", metavar="NAME", help="only this edit")
    sub = add("sync", _sync, "carry what changed in SCRIPT since HEAD to all its descendants")
    sub.add_argument("script", help="name of the lesson, or its file")
    sub.add_argument("--check", action="store_true", help="say what would change, write nothing")
    sub.add_argument(
        "--by-hand", metavar="LESSON", action="append", default=[],
        help="this descendant has the change already: go on below it (may be repeated)",
    )  # fmt: skip
    add("tree", _tree, "show which lesson derives from which, and how many lines it changes")
    sub = add("table", _table, "print the README's table of lessons")
    sub.add_argument("--write", action="store_true", help="put it into the README instead")
    return parser


def _lint(series: Series, options) -> int:
    problems = lint.lint(series)
    for problem in problems:
        print(problem)
    if problems:
        return 1
    edits = sum(len(lesson.edits) for lesson in series)
    lines = sum(sum(lesson.count()) for lesson in series)
    print(f"{len(series)} lessons, {edits} edits, {lines} changed lines: no problems")
    return 0


def _diff(series: Series, options) -> int:
    lesson = series[options.lesson]
    print(render.diff(lesson, lesson.edit(options.edit) if options.edit else None))
    return 0


def _sync(series: Series, options) -> int:
    names = {lesson.file: lesson.name for lesson in series}
    file = os.path.normpath(options.script)
    lesson = series[names.get(file, file)]
    merges = sync.plan(series, lesson, [series[name] for name in options.by_hand])
    conflicts = [merge for merge in merges if merge.conflicts]
    for merge in conflicts:
        name = merge.lesson.name
        print(
            f"{merge.lesson.file}: conflict in lines {', '.join(merge.conflicts)}: make the change "
            f"there by hand, then sync {options.script} --by-hand {name}"
        )
    if conflicts:
        print("nothing is written")
        return 1
    for merge in merges:
        print(merge.summary() + (" (not written)" if options.check else ""))
    if not merges:
        print(f"what changed in {lesson.file} since HEAD is in all its descendants already")
    elif not options.check:
        sync.write(merges)
        print("now check the result: python -m tools.series lint")
    return 0


def _tree(series: Series, options) -> int:
    print(render.tree(series))
    return 0


def _table(series: Series, options) -> int:
    if not options.write:
        print(render.table(series))
        return 0
    readme = series.root / render.README
    text = render.replace_table(readme.read_text(encoding="utf-8"), series)
    os.replace(sync.stage(readme, text.encode()), readme)
    return 0


if __name__ == "__main__":
    sys.exit(main())

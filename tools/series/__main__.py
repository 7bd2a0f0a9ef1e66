"""python -m tools.series: show, run and compare the lessons and their stages; check the series."""

import argparse
import difflib
import os
import sys
from pathlib import Path

from tools.errors import UserError, exit_status
from tools.files import write_whole

from . import launch, lint, observe, render, stages, sync
from .manifest import load, load_all
from .model import Series


def main(arguments: list[str] | None = None) -> int:
    """Run a command. Returns 0, or 1 if lint or sync found something, or 2 if it could not run."""
    options = _parser().parse_args(arguments)
    return exit_status(lambda: options.command(options.load(options.root), options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.series", description=__doc__)
    parser.add_argument(
        "--root", type=Path, help="folder of lessons.toml; default: this repository"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, command, what, load=load):
        sub = commands.add_parser(name, help=what, description=what)
        sub.set_defaults(command=command, load=load)
        return sub

    stage = "a lesson, or a stage of it: multigpu@3 has the first three edits of multigpu"
    sub = add("show", _show, "print the script of a stage", load_all)
    sub.add_argument("stage", help=stage)
    sub = add("run", _run, "run a stage in the current folder, as the lesson's page says", load_all)
    sub.add_argument("--probe", action="store_true", help="each process reports what it did")
    sub.add_argument("stage", help=stage)
    sub.add_argument("args", nargs=argparse.REMAINDER, help="of the script; default: as documented")
    sub = add("diff", _diff, "show what a lesson changes in its parent, edit by edit; or how two "
              "scripts differ: a stage and the one before, or any two stages or files",
              load_all)  # fmt: skip
    sub.add_argument("one", help=stage + "; or a file")
    sub.add_argument("other", nargs="?", help="likewise")
    sub = add("observe", _observe, "run stages, and say whether each shows what its edit promises "
              "and the stage before does not; exit 1 if not", load_all)  # fmt: skip
    sub.add_argument("stage", help="a stage, or a lesson: all its stages")
    sub.add_argument("args", nargs=argparse.REMAINDER, help="of the script; default: lessons.toml")
    add("lint", _lint, "check the rules of the series; exit 1 if one is broken")
    sub = add("sync", _sync, "carry what changed in SCRIPT since HEAD to all its descendants")
    sub.add_argument("script", help="name of the lesson, or its file")
    sub.add_argument(
        "--by-hand", metavar="LESSON", action="append", default=[],
        help="this descendant has the change already: continue below it (may be repeated)",
    )  # fmt: skip
    add("tree", _tree, "show which lesson derives from which, and how many lines it changes")
    add("table", _table, "bring the README's table of lessons up to date")
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
    if series.with_stages and not lint.can_check_names():
        print("skipped: undefined and unused names of the stages (pip install ruff)")
    return 0


def _show(series: Series, options) -> int:
    sys.stdout.write(stages.find(series, options.stage).source.text)
    return 0


def _run(series: Series, options) -> int:
    return launch.run(stages.find(series, options.stage), options.args, options.probe)


def _diff(series: Series, options) -> int:
    one, other = options.one, options.other
    if other is None and "@" not in one:
        print(render.diff(series[one]))
        return 0
    if other is None:
        stage = stages.find(series, one)
        one, other = stage.before.name if stage.number else one, one
    texts = [_text(series, name).splitlines(keepends=True) for name in (one, other)]
    sys.stdout.writelines(difflib.unified_diff(*texts, one, other))
    return 0


def _text(series: Series, name: str) -> str:
    """The text of a stage, or of a file."""
    if name.partition("@")[0] in series.lessons:
        return stages.find(series, name).source.text
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = ", ".join(series.lessons)
        raise UserError(f"{name} is no lesson ({known}), and no file to read: {error}") from None


def _observe(series: Series, options) -> int:
    stage = stages.find(series, options.stage)
    if not stage.lesson.has_stages or stage.number == 0:
        raise UserError(f"{options.stage} has no edit that says what it shows")
    found = [stage] if "@" in options.stage else stages.of(stage.lesson)[1:]
    status = 0
    for one in found:
        problem = observe.problem(one, tuple(options.args))
        status = 1 if problem else status
        good = f"{one.name} shows {one.edit.name}, {one.before.name} does not"
        if len(found) == 1 and not problem:
            print(observe.comparison(one, tuple(options.args)))
        print(problem or good, flush=True)
    return status


def _sync(series: Series, options) -> int:
    names = {lesson.file: lesson.name for lesson in series}
    file = os.path.normpath(options.script)
    lesson = series[names.get(file, file)]
    merges = sync.plan(series, lesson, [series[name] for name in options.by_hand])
    conflicts = [merge for merge in merges if merge.conflicts]
    for merge in conflicts:
        name = merge.lesson.name
        print(f"{merge.lesson.file}: conflict:", *merge.conflicts, sep="\n", end="")
        print(f"make the change there by hand, then sync {options.script} --by-hand {name}")
    if conflicts:
        print("nothing is written")
        return 1
    for merge in merges:
        sync.write(merge)
        print(f"{merge.lesson.file}: merged")
    if merges:
        print("now check the result: python -m tools.series lint")
    else:
        print(f"what changed in {lesson.file} since HEAD is in all its descendants already")
    return 0


def _tree(series: Series, options) -> int:
    print(render.tree(series))
    return 0


def _table(series: Series, options) -> int:
    readme = series.root / render.README
    text = render.replace_table(readme.read_text(encoding="utf-8"), series)
    write_whole(readme, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The rules of the series, checked over the whole tree."""

import ast
import importlib.util
import re
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.errors import UserError

from . import figure, noise, render, stages
from .files import own
from .manifest import MANIFEST
from .model import Lesson, Series
from .source import Problem, Source

UTILS = "utils.py"
# Python files at the top level that are not lessons.
_EXEMPT = {UTILS, "guard.py", "conftest.py", "noxfile.py", "setup.py"}


def lint(series: Series) -> list[Problem]:
    """All problems of the tree, by file and line. Empty if there are none."""
    is_whole = bool(series.utils)  # a chain of docs/* shares its folder, and has no README
    problems = [*_unlisted(series), *_utils(series)] if is_whole else []
    broken = set()
    for lesson in series:
        try:
            _ = lesson.source
        except UserError as error:
            broken.add(lesson)
            problems += error.args
            continue
        problems += [*_order(series, lesson.source), *_columns(series, lesson), *_manual(lesson)]
        if lesson.parent and lesson.parent not in broken:
            problems += [*_budget(lesson), *lesson.problems, *noise.check(lesson)]
    if not broken:  # the README's table counts the lines of all
        problems += [*_stages(series), *(_readme(series) if is_whole else [])]
    return sorted(problems)


def _unlisted(series: Series) -> Iterator[Problem]:
    listed = {lesson.file for lesson in series}
    scripts = [*series.root.glob("*.py"), *series.root.glob("beyond/*.py")]
    own_scripts = filter(own(series.root), scripts)
    present = {path.relative_to(series.root).as_posix() for path in own_scripts}
    for file in sorted(present - listed - _EXEMPT):
        yield Problem(file, 1, f"no lesson of {MANIFEST} has this file: list it or remove it")


def _order(series: Series, source: Source) -> Iterator[Problem]:
    """Definitions are in the order of the series, which lists them all."""
    starts = {}
    for line, (name, text) in enumerate(zip(source.scopes, source.lines, strict=True), 1):
        if text.strip() and name not in ("docstring", "imports", "module"):
            starts.setdefault(name, line)
    above = None
    for name, line in starts.items():
        if name not in series.order:
            message = f"{name} is not in the order of [series]: add it there, or do without"
            yield Problem(source.file, line, message)
        elif above and series.order.index(name) < series.order.index(above):
            yield Problem(source.file, line, f"{name} stands below {above}: move it above")
        else:
            above = name


def _columns(series: Series, lesson: Lesson) -> Iterator[Problem]:
    for number, text in enumerate(lesson.source.lines, 1):
        if len(text) > series.columns:
            message = f"{len(text)} columns, at most {series.columns} are allowed: break the line"
            yield Problem(lesson.file, number, message)


def _manual(lesson: Lesson) -> Iterator[Problem]:
    """The docstring's only indented block is the documented command."""
    manual = ast.get_docstring(lesson.source.tree, clean=False) or ""
    blocks = re.findall(r"(?:^[ \t]+\S.*(?:\n|\Z))+", manual, re.MULTILINE)
    commands = [" ".join(block.replace("\\\n", " ").split()) for block in blocks]
    run = " ".join(lesson.run.split())
    if commands != [run]:
        message = f"the docstring's indented commands are {commands or 'none'}"
        message += f": show {run!r}, and nothing else"
        yield Problem(lesson.file, 1, message)


def _budget(lesson: Lesson) -> Iterator[Problem]:
    added, removed = lesson.count()
    if added + removed > lesson.budget:
        changes = f"{added + removed} changed lines ({added} added, {removed} removed)"
        message = f"[{lesson.name}] {changes}, budget {lesson.budget}: shorten {lesson.file}"
        yield Problem(MANIFEST, lesson.line, message)


def _stages(series: Series) -> Iterator[Problem]:
    """Every stage is a script: it parses, keeps the order, and uses no undefined name."""
    found = {}
    for lesson in series:
        if any(edit.observation for edit in lesson.edits) and not lesson.has_stages:
            silent = next(edit for edit in lesson.edits if not edit.observation)
            message = f"[{lesson.name}] {silent.name} says nothing of what it shows: add shows"
            yield Problem(MANIFEST, silent.line, message)
        if not lesson.has_stages or lesson.problems:
            continue
        for stage in stages.of(lesson)[1:]:
            try:
                found[stage.file] = stage
                yield from _order(series, stage.source) if not stage.is_last else ()
                count = sum(row.counted for row in stage.rows)
                if lesson.edit_budget is not None and count > lesson.edit_budget:
                    message = f"changes {count} lines, edit_budget {lesson.edit_budget}: split it"
                    message = f"[{lesson.name}] {stage.edit.name} {message}"
                    yield Problem(MANIFEST, stage.edit.line, message)
            except UserError as error:
                yield from _in_stage(stage, error.args)
                return
    said = set()
    for file, line, message in _undefined_and_unused(found):
        if (found[file].lesson, message) not in said:  # later stages repeat it
            said.add((found[file].lesson, message))
            yield from _in_stage(found[file], [Problem(file, int(line), message)])


def _in_stage(stage, problems) -> Iterator[Problem]:
    for problem in problems:
        where = f"{stage.name}, line {problem.line}"
        message = f"[{stage.lesson.name}] {where}: {problem.message}; which edit has the line?"
        yield Problem(MANIFEST, stage.edit.line, message)


def can_check_names() -> bool:
    return importlib.util.find_spec("ruff") is not None


def _undefined_and_unused(found) -> list[tuple[str, str, str]]:
    """What ruff's F rules find in the stages: file, line, message. Nothing if there is no ruff."""
    if not found or not can_check_names():
        return []
    with tempfile.TemporaryDirectory() as folder:
        for file, stage in found.items():
            Path(folder, file).write_text(stage.source.text, encoding="utf-8")
        ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select=F"]
        said = subprocess.run(
            [*ruff, "--output-format=concise", "."], cwd=folder, capture_output=True, text=True
        )
    problems = re.findall(r"^([^:\n]+):(\d+):\d+: (.*)$", said.stdout, re.MULTILINE)
    return sorted(problems, key=lambda problem: list(found).index(problem[0]))


def _utils(series: Series) -> Iterator[Problem]:
    """utils.py has the listed public names, and does not do what the lessons teach."""
    try:
        source = Source.read(series.root, UTILS)
    except UserError as error:
        yield from error.args
        return
    for number, line in enumerate(source.lines, 1):
        if re.search(r"\btorch(\.| import .*\b)distributed\b", line):
            message = f"{line.strip()!r}: torch.distributed is for the lessons to use"
            yield Problem(UTILS, number, message)
    names = symtable.symtable(source.text, UTILS, "exec").get_symbols()
    assigned = {name.get_name() for name in names if name.is_assigned()}  # imports are not
    public = {name for name in assigned if not name.startswith("_")}
    for name in sorted(public - set(series.utils)):
        message = f"{name!r} is not in utils of [series]: list it, or begin it with an underscore"
        yield Problem(UTILS, 1, message)
    for name in sorted(set(series.utils) - public):
        message = f"utils of [series] lists {name!r}, but this file does not define it: drop it"
        yield Problem(UTILS, 1, message)


def _readme(series: Series) -> Iterator[Problem]:
    try:
        text = Path(series.root, render.README).read_text(encoding="utf-8")
        current = render.replace_table(text, series)
    except FileNotFoundError:
        yield Problem(render.README, 1, "no such file: write it")
    except UserError as error:
        yield Problem(render.README, 1, str(error))
    else:
        if text != current:
            line = text[: text.index(render.BEGIN)].count("\n") + 1
            message = "the table of lessons is out of date: python -m tools.series table --write"
            yield Problem(render.README, line, message)
        file = series.root / figure.FILE
        drawn = file.read_text(encoding="utf-8") if file.exists() else ""
        if figure.FILE in text and drawn != figure.svg(series):
            message = "this figure is out of date: python -m tools.series table --write"
            yield Problem(figure.FILE, 1, message)

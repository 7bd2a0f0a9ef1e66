"""The rules of the series, checked over the whole tree."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from . import noise, render
from .files import own
from .manifest import MANIFEST
from .model import Lesson, Series
from .source import Problem, SeriesError, Source

UTILS = "utils.py"
# Python files at the top level that are no lessons.
_EXEMPT = {UTILS, "conftest.py", "noxfile.py", "setup.py"}


def lint(series: Series) -> list[Problem]:
    """All problems of the tree, by file and line. Empty if there are none."""
    problems = [*_unlisted(series), *_utils(series)]
    broken = set()
    for lesson in series:
        try:
            _ = lesson.source
        except SeriesError as error:
            broken.add(lesson)
            problems += error.args
            continue
        problems += [*_order(series, lesson), *_columns(series, lesson), *_manual(lesson)]
        if lesson.parent and lesson.parent not in broken:
            problems += [*_budget(lesson), *lesson.problems, *noise.check(lesson)]
    if not broken:  # the README's table counts the lines of all
        problems += _readme(series)
    return sorted(problems)


def _unlisted(series: Series) -> Iterator[Problem]:
    listed = {lesson.file for lesson in series}
    scripts = [*series.root.glob("*.py"), *series.root.glob("beyond/*.py")]
    own_scripts = filter(own(series.root), scripts)
    present = {path.relative_to(series.root).as_posix() for path in own_scripts}
    for file in sorted(present - listed - _EXEMPT):
        yield Problem(file, 1, f"no lesson of {MANIFEST} has this file: list it or remove it")


def _order(series: Series, lesson: Lesson) -> Iterator[Problem]:
    """Definitions stand in the order of the series, and the series knows them all."""
    above = None
    for name, line in lesson.source.definitions:
        if name not in series.order:
            message = f"{name} is not in the order of [series]: add it there, or do without"
            yield Problem(lesson.file, line, message)
        elif above and series.order.index(name) < series.order.index(above):
            yield Problem(lesson.file, line, f"{name} stands below {above}: move it above")
        else:
            above = name


def _columns(series: Series, lesson: Lesson) -> Iterator[Problem]:
    for number, text in enumerate(lesson.source.lines, 1):
        if len(text) > series.columns:
            message = f"{len(text)} columns, at most {series.columns} are allowed: break the line"
            yield Problem(lesson.file, number, message)


def _manual(lesson: Lesson) -> Iterator[Problem]:
    """The docstring shows one command, in its one indented block: the documented one."""
    node = lesson.source.docstring
    if node is None:
        message = f"no docstring: write one with the indented command {lesson.run!r}"
        yield Problem(lesson.file, 1, message)
        return
    blocks = re.findall(r"(?:^[ \t]+\S.*(?:\n|\Z))+", node.value, re.MULTILINE)
    commands = [" ".join(block.replace("\\\n", " ").split()) for block in blocks]
    run = " ".join(lesson.run.split())
    if commands != [run]:
        message = f"the docstring's indented commands are {commands or 'none'}"
        message += f": show {run!r}, and nothing else"
        yield Problem(lesson.file, node.lineno, message)


def _budget(lesson: Lesson) -> Iterator[Problem]:
    added, removed = lesson.count()
    if added + removed > lesson.budget:
        changes = f"{added + removed} changed lines ({added} added, {removed} removed)"
        message = f"[{lesson.name}] {changes}, budget {lesson.budget}: shorten {lesson.file}"
        yield Problem(MANIFEST, lesson.line, message)


def _utils(series: Series) -> Iterator[Problem]:
    """utils.py has the listed public names, and keeps away from what the lessons teach."""
    try:
        tree = Source.read(series.root, UTILS).tree
    except SeriesError as error:
        yield from error.args
        return
    for node in ast.walk(tree):
        if _is_distributed(node):
            message = f"{ast.unparse(node)!r}: torch.distributed is for the lessons to use"
            yield Problem(UTILS, node.lineno, message)
    public = _public(tree)
    for name in sorted(public.keys() - set(series.utils)):
        message = f"{name!r} is not in utils of [series]: list it, or begin it with an underscore"
        yield Problem(UTILS, public[name], message)
    for name in sorted(set(series.utils) - public.keys()):
        message = f"utils of [series] lists {name!r}, but this file does not define it: drop it"
        yield Problem(UTILS, 1, message)


def _is_distributed(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=aliases):
            modules = [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(module), names=aliases):
            modules = [f"{module}.{alias.name}" for alias in aliases]
        case ast.Attribute():
            modules = [ast.unparse(node)] if node.attr == "distributed" else []
        case _:
            modules = []
    return any(re.match(r"torch\.distributed\b", module) for module in modules)


def _public(tree: ast.Module) -> dict[str, int]:
    """The public names that a module defines at its top level, with their lines."""
    names = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found = [name]
            case ast.ClassDef(name=name):
                found = [name]
            case ast.Assign(targets=targets):
                found = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name)):
                found = [name]
            case _:
                found = []
        names |= {name: node.lineno for name in found if not name.startswith("_")}
    return names


def _readme(series: Series) -> Iterator[Problem]:
    try:
        text = Path(series.root, render.README).read_text(encoding="utf-8")
        current = render.replace_table(text, series)
    except FileNotFoundError:
        yield Problem(render.README, 1, "no such file: write it")
    except SeriesError as error:
        yield Problem(render.README, 1, str(error))
    else:
        if text != current:
            line = text[: text.index(render.BEGIN)].count("\n") + 1
            message = "the table of lessons is out of date: python -m tools.series table --write"
            yield Problem(render.README, line, message)

"""The rules of the series, checked over the whole tree."""

import importlib.util
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.errors import UserError
from tools.files import own

from . import noise, render, stages
from .manifest import MANIFEST
from .model import Lesson, Series
from .source import Problem

COLUMNS = 80  # so that two columns of a diff fit on a page
UTILS = "utils.py"
_BESIDE = {UTILS, "guard.py"}  # the files beside the lessons that are none


def lint(series: Series) -> list[Problem]:
    """All problems of the tree, by file and line. Empty if there are none."""
    unreadable = [*_unreadable(series)]
    if unreadable:
        return sorted(unreadable)
    problems = [*_stages(series)]
    for lesson in series:
        problems += _columns(lesson)
        if lesson.parent:
            problems += [*_budget(lesson), *lesson.problems, *noise.check(lesson)]
    if (series.root / UTILS).exists():  # not in a chain of docs/*, whose folder has other scripts
        problems += [*_unlisted(series), *_utils(series), *_readme(series)]
    return sorted(problems)


def _unreadable(series: Series) -> Iterator[Problem]:
    """Scripts that do not parse or show no command. Until they do, nothing else is checked."""
    for lesson in series:
        try:
            _ = lesson.source, lesson.run
        except UserError as error:
            yield from error.args


def _unlisted(series: Series) -> Iterator[Problem]:
    listed = {lesson.file for lesson in series}
    scripts = [series.root.glob(f"{folder}*.py") for folder in ("", "parallel/", "beyond/")]
    own_scripts = filter(own(series.root), itertools.chain(*scripts))
    present = {path.relative_to(series.root).as_posix() for path in own_scripts}
    for file in sorted(present - listed - _BESIDE):
        yield Problem(file, 1, f"no lesson of {MANIFEST} has this file: list it or remove it")


def _columns(lesson: Lesson) -> Iterator[Problem]:
    for number, text in enumerate(lesson.source.lines, 1):
        if len(text) > COLUMNS:
            message = f"{len(text)} columns, at most {COLUMNS} are allowed: break the line"
            yield Problem(lesson.file, number, message)


def _budget(lesson: Lesson) -> Iterator[Problem]:
    added, removed = lesson.count()
    if added + removed > lesson.budget:
        changes = f"{added + removed} changed lines ({added} added, {removed} removed)"
        message = f"[{lesson.name}] {changes}, budget {lesson.budget}: shorten {lesson.file}"
        yield Problem(MANIFEST, lesson.line, message)


def _stages(series: Series) -> Iterator[Problem]:
    """Every stage is a script that parses and uses no undefined name; no edit is too large."""
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
    """utils.py does not do what the lessons teach."""
    lines = (series.root / UTILS).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if re.search(r"\btorch(\.| import .*\b)distributed\b", line):
            message = f"{line.strip()!r}: torch.distributed is for the lessons to use"
            yield Problem(UTILS, number, message)


def _readme(series: Series) -> Iterator[Problem]:
    text = (series.root / render.README).read_text(encoding="utf-8")
    if text != render.replace_table(text, series):
        message = "the table of lessons is out of date: python -m tools.series table"
        yield Problem(render.README, text[: text.index(render.BEGIN)].count("\n") + 1, message)

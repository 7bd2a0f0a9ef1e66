"""The series as text: diffs, the tree, the table in the README."""

from collections.abc import Iterator
from itertools import groupby

from tools.errors import UserError

from . import stages
from .diff import near_changes
from .model import Lesson, Series

README = "README.md"
BEGIN, END = "<!-- lessons:begin -->", "<!-- lessons:end -->"


def diff(lesson: Lesson) -> str:
    """The changes of a lesson edit by edit: how each changes the stage before into its own.

    Raises UserError for a root.
    """
    if lesson.parent is None:
        raise UserError(f"{lesson.name} has no parent to differ from")
    parts = [f"--- {lesson.parent.file}\n+++ {lesson.file}"]
    for stage in stages.of(lesson)[1:]:
        signs = [row.sign for row in stage.rows if row.counted]
        counts = f"{signs.count('+')} added, {signs.count('-')} removed"
        head = f"{stage.name} {stage.edit.name}: {stage.edit.title} ({counts})"
        parts.append("\n".join([head, *_unified(stage)]))
    added, removed = lesson.count()
    parts.append(f"{_against_budget(lesson)} changed lines: {added} added, {removed} removed")
    return "\n\n".join(parts)


def _unified(stage: stages.Stage) -> Iterator[str]:
    """The changes of an edit in context, each below the scope in which they begin."""
    shown = zip(stage.rows, near_changes(stage.rows, counted_only=False), strict=True)
    for near, run in groupby(shown, lambda pair: pair[1]):
        rows = [row for row, _ in run]
        if near:
            first = next(row for row in rows if row.changed)
            yield f"@@ {first.scope} @@"
            yield from ((row.sign + row.text).rstrip() for row in rows)


def tree(series: Series) -> str:
    """The lessons, each indented below its parent, with its changed lines and its budget."""
    lines = []

    def visit(lesson, depth):
        lines.append(("  " * depth + lesson.name, _against_budget(lesson), lesson.title))
        for child in series:
            if child.parent is lesson:
                visit(child, depth + 1)

    for lesson in series:
        if lesson.parent is None:
            visit(lesson, 0)
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "\n".join(f"{a:{widths[0]}}  {b:>{widths[1]}}  {c}" for a, b, c in lines)


def _against_budget(lesson):
    return f"{sum(lesson.count())} of {lesson.budget}" if lesson.parent else ""


def table(series: Series) -> str:
    """The lessons as a Markdown table."""
    lines = [
        "| lesson | what it adds | command | changed lines (added + removed) |",
        "|---|---|---|---|",
    ]
    for lesson in series.chain:
        added, removed = lesson.count()
        changes = f"{added + removed} ({added} + {removed})" if lesson.parent else "–"
        cells = [f"[{lesson.file}]({lesson.file})", lesson.title, f"`{lesson.run}`", changes]
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(lines)


def replace_table(readme: str, series: Series) -> str:
    """The README with its table brought up to date. It has both markers once, or ValueError."""
    above, below = readme.split(f"{BEGIN}\n")
    _, below = below.split(END)
    return f"{above}{BEGIN}\n{table(series)}\n{END}{below}"

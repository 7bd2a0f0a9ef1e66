"""The stages of a lesson: the script after each of its edits.

`multigpu@3` is the parent of `multigpu` with the first three edits made. `multigpu@0` is that
parent, and the last stage is the lesson's file, byte for byte. A plain `multigpu` means the last.

A stage is computed from the diff of the lesson: the lines that both scripts have, those that the
edits made so far add, and those that later edits remove. If these alone would not run, lessons.toml
has interim lines, which are in no script of the tree.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from tools.errors import UserError

from .diff import Line, compare
from .model import Edit, Lesson, Series
from .source import Problem, Source


@dataclass(frozen=True)
class Stage:
    """A lesson after its first `number` edits."""

    lesson: Lesson
    number: int

    @property
    def name(self) -> str:
        return f"{self.lesson.name}@{self.number}"

    @property
    def is_last(self) -> bool:
        return self.number == len(self.lesson.edits)

    @property
    def edit(self) -> Edit:
        """The edit that makes this stage of the one before. Stage 0 has none."""
        return self.lesson.edits[self.number - 1]

    @property
    def before(self) -> "Stage":
        return Stage(self.lesson, self.number - 1)

    @property
    def file(self) -> str:
        """`multigpu_3.py`; the last stage has the name of the lesson's file."""
        last = PurePath(self.lesson.file).name
        return last if self.is_last else f"{self.lesson.name}_{self.number}.py"

    @property
    def run(self) -> str:
        """The documented command: the lesson's, or for stage 0 the parent's."""
        is_parent = self.number == 0 and self.lesson.parent
        return self.lesson.parent.run if is_parent else self.lesson.run

    @cached_property
    def source(self) -> Source:
        """Raises UserError if the stage is not valid Python, or lacks an interim line's place."""
        if not self.lesson.parent:
            return self.lesson.source
        edits = self.lesson.edits[: self.number]
        made = {edit.name for edit in edits}
        waiting = [one for edit in edits for one in edit.interims if one.until not in made]
        lines = []
        for row in self.lesson.rows:
            for one in [one for one in waiting if one.scope == row.scope]:
                if one.before.search(row.text):
                    lines.append(one.text)
                    waiting.remove(one)
            if row.sign == " " or (row.sign == "+") == (row.edit in made):
                lines.append(row.text)
        if waiting:
            message = f"{self.name} has no line {waiting[0].before.pattern!r} in {waiting[0].scope}"
            raise UserError(Problem(self.file, 1, f"{message} for an interim line to precede"))
        return Source.parse(self.file, "\n".join(lines) + "\n")

    @cached_property
    def rows(self) -> list[Line]:
        """The diff from the stage before, with its unchanged lines. Stage 0 has none."""
        here = {name for scope in self.source.scopes for name in scope.split(".")}
        renames = {old: new for old, new in self.lesson.renames.items() if old not in here}
        return compare(self.before.source, self.source, renames)

    @property
    def fingerprint(self) -> str:
        """A hash of the changed lines' text alone: it does not change if they move."""
        text = "\n".join(row.sign + row.text for row in self.rows if row.changed)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def of(lesson: Lesson) -> list[Stage]:
    """All stages of a lesson, its parent first."""
    return [Stage(lesson, number) for number in range(len(lesson.edits) + 1)]


def after(edit: Edit) -> Stage:
    """The stage that an edit leaves behind."""
    return Stage(edit.lesson, edit.lesson.edits.index(edit) + 1)


def find(series: Series, name: str) -> Stage:
    """The stage of that name. Raises UserError if there is none."""
    lesson_name, at, number = name.partition("@")
    lesson = series[lesson_name]
    last = len(lesson.edits)
    if not at:
        return Stage(lesson, last)
    if not lesson.has_stages:
        known = ", ".join(series.with_stages) or "none"
        raise UserError(f"{lesson_name} has no stages; lessons with stages: {known}")
    if not (number.isdecimal() and int(number) <= last):
        raise UserError(f"no stage {name!r}: {lesson_name} has @0 to @{last}")
    return Stage(lesson, int(number))

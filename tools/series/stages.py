"""The stages of a lesson: the script that each of its edits leaves behind.

`multigpu@3` is the parent of `multigpu` with the first three edits made. `multigpu@0` is that
parent, and the last stage is the lesson's file, byte for byte. A plain `multigpu` means the last.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from .model import Edit, Lesson, Series
from .source import SeriesError, Source


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
        path = PurePath(self.lesson.file)
        return path.name if self.is_last else f"{path.stem}_{self.number}{path.suffix}"

    @property
    def run(self) -> str:
        """The documented command: the lesson's, or for stage 0 the parent's."""
        is_parent = self.number == 0 and self.lesson.parent
        return self.lesson.parent.run if is_parent else self.lesson.run

    @cached_property
    def source(self) -> Source:
        """Raises SeriesError for a stage that is no Python."""
        if not self.lesson.parent:
            return self.lesson.source
        made = {edit.name for edit in self.lesson.edits[: self.number]}
        lines = [
            row.text
            for row in self.lesson.rows
            if row.sign == " " or (row.sign == "+") == (row.edit in made)
        ]
        return Source.parse(self.file, "\n".join(lines) + "\n")


def of(lesson: Lesson) -> list[Stage]:
    """All stages of a lesson, its parent first."""
    return [Stage(lesson, number) for number in range(len(lesson.edits) + 1)]


def find(series: Series, name: str) -> Stage:
    """The stage of that name. Raises SeriesError if there is none."""
    lesson_name, at, number = name.partition("@")
    lesson = series[lesson_name]
    last = len(lesson.edits)
    if not at:
        return Stage(lesson, last)
    if not lesson.has_stages:
        known = ", ".join(series.with_stages) or "none"
        raise SeriesError(f"{lesson_name} has no stages; lessons with stages: {known}")
    if not (number.isdecimal() and int(number) <= last):
        raise SeriesError(f"no stage {name!r}: {lesson_name} has @0 to @{last}")
    return Stage(lesson, int(number))

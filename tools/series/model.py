"""What the manifest describes: the series, its lessons, their edits."""

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tools.errors import UserError

from .diff import Line, compare, with_others_made
from .partition import assign
from .source import Problem, Source


@dataclass(frozen=True)
class Scope:
    """An address of changed lines: a definition, perhaps narrowed by a regular expression."""

    name: str
    match: re.Pattern | None = None

    def __str__(self):
        return f"{self.name} with match {self.match.pattern!r}" if self.match else self.name


@dataclass(frozen=True)
class Observation:
    """What an edit's stage prints when run, and the stage before does not."""

    shows: re.Pattern | None = None
    lacks: re.Pattern | None = None
    # These compare what their group matches last in an output.
    same: re.Pattern | None = None  # the same in both runs
    differs: re.Pattern | None = None  # not the same in both runs
    lowers: re.Pattern | None = None  # a lower number than the stage before's
    args: tuple[str, ...] = ()  # in addition to those of every run
    again: tuple[str, ...] | None = None  # those of a second run, for comparison
    fault: str | None = None  # what goes wrong in both stages, in the first run: observe.py

    def holds(self, outputs: list[str], before: list[str]) -> bool:
        """Whether the output of each run is as described; `before` is that of the stage before."""
        text = "\n".join(outputs)
        if self.shows and not self.shows.search(text):
            return False
        if self.lacks and self.lacks.search(text):
            return False
        if self.lowers:
            one, other = _last(self.lowers, [outputs[0], before[0]])
            return None not in (one, other) and float(one) < float(other)
        if self.same or self.differs:
            one, other = _last(self.same or self.differs, outputs)
            return None not in (one, other) and (one == other) == bool(self.same)
        return True


def _last(pattern, outputs):
    """What the pattern's group finds last in each output; None where it finds nothing."""
    return [(pattern.findall(text) or [None])[-1] for text in outputs]


@dataclass(frozen=True)
class Interim:
    """Lines that are in some stages only: from their edit on, until the edit `until`."""

    scope: str
    before: re.Pattern  # they go above the first line of the scope in which this is found
    text: str
    until: str


@dataclass(eq=False)
class Edit:
    """A named group of changed lines of a lesson."""

    lesson: "Lesson" = field(repr=False)
    name: str
    title: str
    scopes: list[Scope]
    line: int  # of its table in the manifest
    observation: "Observation | None" = None
    interims: list[Interim] = field(default_factory=list)
    options: list[str] = field(default_factory=list)  # of the script, without effect before it
    page: str = ""  # the page that explains it

    @property
    def lines(self) -> list[Line]:
        return [line for line in self.lesson.diff() if line.edit == self.name]

    @property
    def rows(self) -> list[Line]:
        """Its lines in the whole lesson, with all other edits made already."""
        return list(with_others_made(self.lesson.rows, self.name))


@dataclass(eq=False)
class Lesson:
    """A script of the series. Reading it or its parent may raise UserError."""

    root: Path = field(repr=False)
    name: str
    file: str  # relative to the root
    title: str
    page: str
    parent: "Lesson | None" = field(repr=False)
    budget: int | None
    line: int  # of its table in the manifest
    edit_budget: int | None = None  # the most lines that one edit may change
    observe: tuple[str, ...] = ()  # the arguments with which its stages are observed
    renames: dict[str, str] = field(default_factory=dict)  # names that mean something new here
    edits: list[Edit] = field(default_factory=list)

    @cached_property
    def run(self) -> str:
        """The documented command: the only indented block of the script's docstring.

        Raises UserError if there is none, or another.
        """
        manual = ast.get_docstring(self.source.tree, clean=False) or ""
        blocks = re.findall(r"(?:^[ \t]+\S.*(?:\n|\Z))+", manual, re.MULTILINE)
        found = [" ".join(block.replace("\\\n", " ").split()) for block in blocks]
        try:
            (run,) = found
            parse_command(run)
        except ValueError:
            message = f"the docstring's indented commands are {found or 'none'}: show one"
            raise UserError(Problem(self.file, 1, message)) from None
        return run

    @property
    def command(self) -> tuple[dict[str, str], list[str]]:
        """The documented command: the variables it sets, and its words."""
        return parse_command(self.run)

    @cached_property
    def source(self) -> Source:
        return Source.read(self.root, self.file)

    @cached_property
    def _assigned(self) -> tuple[list[Line], list[Problem]]:
        if not self.parent:
            return [], []
        return assign(compare(self.parent.source, self.source, self.renames), self)

    @property
    def rows(self) -> list[Line]:
        """The diff from the parent with its unchanged lines; empty for a root."""
        return self._assigned[0]

    @property
    def problems(self) -> list[Problem]:
        """Why the edits do not partition the diff; empty if they do."""
        return self._assigned[1]

    @property
    def has_stages(self) -> bool:
        """Whether every edit leaves a script that runs, and lists what that shows."""
        return bool(self.edits) and all(edit.observation for edit in self.edits)

    def diff(self) -> list[Line]:
        """The changed lines, in reading order."""
        return [row for row in self.rows if row.changed]

    def count(self) -> tuple[int, int]:
        """How many lines it adds and removes, as the budget counts."""
        signs = [line.sign for line in self.rows if line.counted]
        return signs.count("+"), signs.count("-")

    def edit(self, name: str) -> Edit:
        """Raises UserError for an unknown name, listing the known ones."""
        return _pick({edit.name: edit for edit in self.edits}, name, f"edit of {self.name}")


@dataclass(eq=False)
class Series:
    """The lessons, parents before children."""

    root: Path
    lessons: dict[str, Lesson]

    def __getitem__(self, name: str) -> Lesson:
        """Raises UserError for an unknown name, listing the known ones."""
        return _pick(self.lessons, name, "lesson")

    def __iter__(self) -> Iterator[Lesson]:
        return iter(self.lessons.values())

    def __len__(self) -> int:
        return len(self.lessons)

    @property
    def with_stages(self) -> list[str]:
        """The names of the lessons that have stages."""
        return [lesson.name for lesson in self if lesson.has_stages]

    @property
    def chain(self) -> list[Lesson]:
        """The lessons that the README lists. Those of beyond/ are beside them: each may go."""
        return [lesson for lesson in self if not lesson.file.startswith("beyond/")]


def _pick(known, name, kind):
    if name not in known:
        raise UserError(f"no {kind} is called {name!r}; there are: {', '.join(known) or 'none'}")
    return known[name]


def parse_command(run: str) -> tuple[dict[str, str], list[str]]:
    """Split a shell command into leading assignments and words. ValueError if it has no words."""
    words, env = shlex.split(run), {}
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, env[name] = words.pop(0).partition("=")
    if not words:
        raise ValueError("no command")
    return env, words

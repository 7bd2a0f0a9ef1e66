"""Two scripts compared, line by line within each definition.

Definitions are aligned first, by name; then lines, within each pair of definitions. So a line is
never matched with an equal one in another definition, such as a `return`. An inserted function is
one block that starts above its `def` and ends with its last line.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import groupby, takewhile

from .source import Source

CONTEXT = 2  # unchanged lines shown above and below a change


@dataclass(frozen=True)
class Line:
    """A line of a diff."""

    sign: str  # "+" added, "-" removed, " " in both
    number: int  # from 1: in the parent for "-", else in the child
    text: str  # without the line break
    scope: str  # the definition that encloses it, as in Source.scopes
    edit: str | None = None  # the name of its edit; None if unchanged, or if not exactly one has it

    @property
    def changed(self) -> bool:
        return self.sign != " "

    @property
    def counted(self) -> bool:
        """Whether it counts against the budget: blank lines and the module's docstring do not."""
        return self.changed and bool(self.text.strip()) and self.scope != "docstring"


def compare(parent: Source, child: Source, renames: dict[str, str] | None = None) -> list[Line]:
    """All lines of both scripts in reading order; within a hunk, what is removed comes first.

    If `renames` replaces the name of a definition of the parent, that is compared with the one of
    the new name, and its removed lines have the new name as their scope.
    """
    new_names = [_renamed(scope, renames or {}) for scope in parent.scopes]
    old = _definitions("-", parent, new_names)
    new = _definitions("+", child, child.scopes)
    rows = []
    for tag, i1, i2, j1, j2 in _opcodes(*([run[0].scope for run in runs] for runs in (old, new))):
        if tag == "equal":
            for removed, added in zip(old[i1:i2], new[j1:j2], strict=True):
                rows += _align(removed, added)
        else:
            for run in old[i1:i2] + new[j1:j2]:
                rows += run
    return rows


def hunks(rows: list[Line]) -> Iterator[list[Line]]:
    """The runs of changed lines, cut where the scope changes."""
    for (changed, _), run in groupby(rows, lambda row: (row.changed, row.scope)):
        if changed:
            yield list(run)


def with_others_made(rows: list[Line], edit: str) -> Iterator[Line]:
    """The rows of a lesson with all edits but one made already.

    Lines that the others add are context, and lines that they remove are left out. The lines that
    this edit removes are next to those it adds, even if others' lines are in between.
    """
    for _, run in groupby(rows, lambda row: (row.changed, row.scope)):
        run = list(run)
        removed = [row for row in run if row.sign == "-" and row.edit == edit]
        present = [
            row if row.edit == edit else replace(row, sign=" ") for row in run if row.sign != "-"
        ]
        place = next((i for i, row in enumerate(present) if row.changed), 0)
        yield from present[:place] + removed + present[place:]


def _renamed(scope, renames):
    return ".".join(renames.get(name, name) for name in scope.split("."))


def _opcodes(old, new):
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()


def _definitions(sign: str, source: Source, scopes: list[str]) -> list[list[Line]]:
    """The lines of a script, cut where the scope changes."""
    texts = zip(source.lines, scopes, strict=True)
    lines = [Line(sign, number, *one) for number, one in enumerate(texts, 1)]
    return [list(run) for _, run in groupby(lines, lambda line: line.scope)]


def _align(old: list[Line], new: list[Line]) -> Iterator[Line]:
    """The lines of both; one that is in both has the number of `new`."""
    texts = [line.text for line in old], [line.text for line in new]
    removed, added = [True] * len(old), [True] * len(new)
    opcodes = _opcodes(*texts)
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal":
            removed[i1:i2] = added[j1:j2] = [False] * (i2 - i1)
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "insert":
            _slide(texts[1], added, j1, j2)
        elif tag == "delete":
            _slide(texts[0], removed, i1, i2)
    i = j = 0
    while i < len(old) or j < len(new):
        if i < len(old) and removed[i]:
            yield old[i]
            i += 1
        elif added[j]:
            yield new[j]
            j += 1
        else:  # unmarked lines pair off in order, and have equal texts
            yield replace(new[j], sign=" ")
            i, j = i + 1, j + 1


def _slide(lines: list[str], marks: list[bool], start: int, stop: int):
    """Move the marked block [start, stop) to the place, among equivalent ones, where it reads best.

    At an equivalent place the other lines are the same, and no line is marked already. The best one
    has the least indented edges, because these split no statement. Among equals, it does not end in
    a blank line, then is the lowest, as in git.
    """
    others = lines[:start] + lines[stop:]

    def indent(index):
        text = next((line for line in lines[index:] if line.strip()), "")
        return len(text) - len(text.lstrip())

    def cost(shift):
        top, bottom = start + shift, stop + shift
        return indent(top) + indent(bottom), not lines[bottom - 1].strip(), -shift

    shifts = [
        shift for shift in range(-start, len(lines) - stop + 1)
        if lines[: start + shift] + lines[stop + shift :] == others
        and not any(marks[start + shift : start] + marks[stop : stop + shift])
    ]  # fmt: skip
    shift = min(shifts, key=cost)
    marks[start:stop] = [False] * (stop - start)
    marks[start + shift : stop + shift] = [True] * (stop - start)


def near_changes(rows: list[Line], counted_only: bool = True) -> list[bool]:
    """For each row whether it is close enough to a change to be shown with it.

    By default, changes of the docstring and blank lines count only if there are no others. No
    blank line begins or ends what is shown, and a gap of one or two lines is not worth a fold.
    """
    counted = [row.counted for row in rows]
    shown = counted if any(counted) and counted_only else [row.changed for row in rows]
    near = [any(shown[max(0, i - CONTEXT) : i + CONTEXT + 1]) for i in range(len(rows))]
    for run in _runs(near):
        for edge in (run, reversed(run)) if near[run[0]] else ():
            for i in takewhile(lambda i: not rows[i].changed and not rows[i].text.strip(), edge):
                near[i] = False
    for run in _runs(near)[1:-1]:
        if len(run) <= 2:
            near[run[0] : run[-1] + 1] = [True] * len(run)
    return near


def _runs(near: list[bool]) -> list[list[int]]:
    """The indices of a list, cut where its value changes."""
    return [list(run) for _, run in groupby(range(len(near)), near.__getitem__)]

"""Assign each changed line of a lesson to exactly one of its edits."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from .diff import Line, hunks
from .source import Problem


def assign(rows: list[Line], lesson) -> tuple[list[Line], list[Problem]]:
    """The rows with their edits filled in, and why the edits of `lesson` do not partition them.

    Among the scopes that name a line's definition, one whose match is found in it precedes one
    without a match. A blank line goes with its neighbour in the hunk.
    """
    problems, active, owner = [], set(), {}
    for hunk in hunks(rows):
        claims = [_claims(lesson.edits, line) for line in _spokesmen(hunk)]
        for (sign, names), run in groupby(
            zip(hunk, claims, strict=True),
            lambda pair: (pair[0].sign, [edit.name for edit, _ in pair[1]]),
        ):
            lines, claimed = zip(*run, strict=True)
            active.update(*claimed)
            if len(names) == 1:
                owner |= {(sign, line.number): names[0] for line in lines}
            else:
                problems.append(_not_one(lesson, lines, names))
    changed = list(dict.fromkeys(row.scope for row in rows if row.changed))
    for edit in lesson.edits:
        for scope in edit.scopes:
            if (edit, scope) not in active:
                problems.append(_idle(lesson, edit, scope, changed))
    rows = [replace(row, edit=owner.get((row.sign, row.number))) for row in rows]
    return rows, problems


def _spokesmen(hunk: list[Line]) -> list[Line]:
    """For each line the one that speaks for it: itself, or for a blank line the next below in the
    hunk that has its sign and is not blank, or failing that the next above."""
    result = []
    for i, line in enumerate(hunk):
        nearest = [other for other in hunk[i:] + hunk[i::-1] if other.sign == line.sign]
        result.append(next((other for other in nearest if other.text.strip()), line))
    return result


def _claims(edits, line: Line) -> list[tuple]:
    """The scopes that claim the line, each with its edit."""
    here = [(edit, one) for edit in edits for one in edit.scopes if one.name == line.scope]
    matches = [(edit, one) for edit, one in here if one.match and one.match.search(line.text)]
    return matches or [(edit, one) for edit, one in here if not one.match]


def _not_one(lesson, lines: Sequence[Line], names: list[str]) -> Problem:
    """`lines` are adjacent, and together belong to no edit or to several."""
    line = next((line for line in lines if line.text.strip()), lines[0])
    file = lesson.parent.file if line.sign == "-" else lesson.file
    what = f"{line.sign}{line.text.strip()!r} in {line.scope}"
    if len(lines) > 1:
        what += f", one of {len(lines)} lines,"
    if names:
        what += f" belongs to {' and to '.join(names)}: narrow one of them with a match"
    else:
        what += " belongs to no edit: name its scope in one"
    return Problem(file, line.number, f"[{lesson.name}] {what}")


def _idle(lesson, edit, scope, changed: list[str]) -> Problem:
    message = f"[{lesson.name}] edit {edit.name}: scope {scope} takes no changed line; "
    if scope.name in changed:
        message += f"what changed in {scope.name} is taken by others, or does not match"
    else:
        message += f"scopes that changed: {', '.join(changed) or 'none'}; not {scope.name!r}"
    return Problem("lessons.toml", edit.line, message)

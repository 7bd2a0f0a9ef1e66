"""Changes that teach nothing: names replaced, lines moved, layout or comments touched up.

Lines are compared word by word, so line breaks and indentation do not hide that the code is the
same. The module's docstring may change freely.
"""

import ast
import re
from collections.abc import Iterator
from itertools import product

from .diff import Line, hunks
from .model import Lesson
from .source import Problem

_SAME = "the same but for its place, layout or comment"
_IDENTIFIERS = ("id", "attr", "arg", "name", "asname")  # the fields of ast's nodes that hold names


def check(lesson: Lesson) -> Iterator[Problem]:
    """What is wrong with the diff of a lesson that has a parent."""
    removed, added = [], []
    for hunk in hunks(lesson.rows):
        old, new = ([line for line in hunk if line.sign == sign] for sign in "-+")
        if hunk[0].scope == "docstring":
            continue
        if _words(*old) != _words(*new):
            removed, added = removed + old, added + new
            continue
        line = next((line for line in new + old if line.text.strip()), hunk[0])
        yield _problem(lesson, line, f"only layout or comments change at {line.text.strip()!r}")
    yield from _moved_or_renamed(lesson, removed, added)


def _moved_or_renamed(lesson: Lesson, removed: list[Line], added: list[Line]) -> Iterator[Problem]:
    """Lines that are removed here and added there, the same but for names that the
    script defines. A line that moves into a new function is not noise: the function is the change.
    Nor is one that loses its indentation with the statement above it.
    """
    known = {*lesson.parent.source.scopes}
    gone, fresh = _replaced(lesson.parent.source.tree, lesson.source.tree)
    renamed = {*lesson.renames.items()}
    words = {line: _words(line) for line in removed + added}
    for line, there in product(removed, added):
        old, new = words[line], words[there]
        pairs = {(a, b) for a, b in zip(old, new, strict=False) if a != b}
        if len(old) != len(new) or not all(a in gone and b in fresh for a, b in pairs):
            continue
        says_much = len(old) > 2 or "import" in old  # `return x` may be in many places
        says_much &= not (line.scope == there.scope and _indent(line) > _indent(there))
        if not pairs and there.scope in known and says_much:
            what = f"{there.text.strip()!r} is line {line.number} of {lesson.parent.file}"
            yield _problem(lesson, there, f"{what}, {_SAME}")
        for name, other in sorted(pairs - renamed):
            renamed.add((name, other))
            yield _problem(lesson, there, f"{name!r} is only renamed to {other!r}")


def _indent(line):
    return len(line.text) - len(line.text.lstrip())


def _words(*lines: Line) -> list[str]:
    """Names, numbers and signs, those in strings too, without the comments.

    Commas are left out, because the last one depends on the layout.
    """
    code = [re.sub(r"(^|  )#.*", "", line.text.strip()) for line in lines]
    return re.findall(r"\w+|[^\w\s,]", "\n".join(code))


def _replaced(before: ast.AST, after: ast.AST) -> tuple[set[str], set[str]]:
    """The names that the script defined before and no longer has; and those that are new."""

    def names(nodes):
        return {getattr(node, field, None) for node in nodes for field in _IDENTIFIERS}

    def own(tree):  # neither imported nor only used
        return names(
            node for node in ast.walk(tree)
            if not isinstance(node, ast.alias | ast.keyword)
            and not isinstance(getattr(node, "ctx", None), ast.Load)
        )  # fmt: skip

    return own(before) - names(ast.walk(after)), own(after) - names(ast.walk(before))


def _problem(lesson, line, message):
    file = lesson.file if line.sign == "+" else lesson.parent.file
    advice = f"leave it as {lesson.parent.file} has it"
    return Problem(file, line.number, f"[{lesson.name}] {message}: {advice}")

"""Changes that teach nothing: names replaced, lines moved, layout or comments touched up.

Tokens are compared, so that neither line breaks nor indentation hide that the code is the same.
Prose may flow as it must: each line of a docstring is one token, part of a string.
"""

import ast
from collections.abc import Iterator

from .diff import Line, hunks
from .model import Lesson
from .source import Problem
from .tokens import is_trivial, tokens, words


def check(lesson: Lesson) -> Iterator[Problem]:
    """What is wrong with the diff of a lesson that has a parent."""
    changes = _Changes(lesson)
    yield from changes.unchanged()
    yield from changes.moved()
    yield from changes.renamed()


class _Changes:
    """The changed lines of a lesson and their tokens; each method looks for one kind of noise."""

    def __init__(self, lesson: Lesson):
        def signed(sign, hunk):
            return [line for line in hunk if line.sign == sign]

        self.lesson = lesson
        self.hunks = [(signed("-", hunk), signed("+", hunk)) for hunk in hunks(lesson.rows)]
        self.removed = [line for old, _ in self.hunks for line in old]
        self.added = [line for _, new in self.hunks for line in new]
        self.tokens = {"-": tokens(lesson.parent.source), "+": tokens(lesson.source)}

    def code(self, lines: list[Line]) -> list[str]:
        return [token for line in lines for token in self.tokens[line.sign][0][line.number - 1]]

    def comments(self, lines: list[Line]) -> list[str]:
        return [text for line in lines if (text := self.tokens[line.sign][1][line.number - 1])]

    def unchanged(self):
        """Hunks, and runs of removed and of added lines in one hunk, with the same tokens."""
        for old, new in self.hunks:
            if self.code(old) == self.code(new):
                yield self.same(old, new)
            elif old and new:
                yield from self.unchanged_runs(old, new)

    def unchanged_runs(self, old, new):
        twins = {tuple(self.code(run)): run for run in self.runs(new)}
        seen = set()
        for run in self.runs(old):
            twin = twins.get(tuple(self.code(run)))
            if twin and seen.isdisjoint(run) and not is_trivial(self.code(run)):
                seen.update(run)
                yield self.same(run, twin)

    def runs(self, lines):
        """All runs that begin and end with code, the longest first."""
        ends = [i for i, line in enumerate(lines) if self.code([line])]
        runs = [lines[i : j + 1] for i in ends for j in ends if i <= j]
        return sorted(runs, key=len, reverse=True)

    def same(self, old, new):
        line = next((line for line in new + old if line.text.strip()), None)
        if line is None:
            return self.at((new + old)[0], "only the number of blank lines changes")
        what = "the layout" if self.comments(old) == self.comments(new) else "a comment"
        return self.at(line, f"only {what} changes at {line.text.strip()!r}")

    def moved(self):
        """Lines of substance that are removed here and added there, character for character.

        A line that goes into a new function is no noise: the function is the change.
        """
        known = {*self.lesson.parent.source.scopes}
        for old in self.removed:
            there = (line for line in self.added if line.text == old.text and line.scope in known)
            new = next(there, None)
            if new and not is_trivial(self.code([old])):
                place = f"line {old.number} of {self.lesson.parent.file}"
                yield self.at(new, f"{new.text.strip()!r} is only moved here from {place}")

    def renamed(self):
        """Names of the parent's own that vanish while new ones take their place in a line."""
        before, after = self.lesson.parent.source.tree, self.lesson.source.tree
        gone, fresh = _bound(before) - _used(after), _bound(after) - _used(before)
        old_words = [words(self.code([line])) for line in self.removed]
        new_words = [words(self.code([line])) for line in self.added]
        found = {}
        for old in old_words:
            for line, new in zip(self.added, new_words, strict=True):
                pairs = {(a, b) for a, b in zip(old, new, strict=False) if a != b}
                if len(old) == len(new) and all(a in gone and b in fresh for a, b in pairs):
                    found |= {pair: line for pair in pairs if pair not in found}
        for (name, other), line in found.items():
            if (name, other) in self.lesson.renames.items():
                continue
            yield self.at(line, f"{name!r} is only renamed to {other!r}")

    def at(self, line, message):
        file = self.lesson.file if line.sign == "+" else self.lesson.parent.file
        advice = f"leave it as {self.lesson.parent.file} has it"
        return Problem(file, line.number, f"[{self.lesson.name}] {message}: {advice}")


def _bound(tree: ast.AST) -> set[str]:
    """The names that a script gives to things itself; those it imports are not its own."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
    return names


def _used(tree: ast.AST) -> set[str]:
    """All names that occur in a script."""
    names = _bound(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=asname):
                names.update(name.split("."), {asname} - {None})
    return names

"""One Python script, read and parsed: which definition encloses each of its lines."""

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tools.errors import UserError

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Problem(NamedTuple):
    """What is wrong with a line of a file, and what to do about it."""

    file: str
    line: int
    message: str

    def __str__(self):
        return f"{self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """A script. What is derived from its text is computed once, on first use."""

    file: str  # relative to the root of the series, as messages name it
    text: str

    @classmethod
    def read(cls, root: Path, file: str) -> "Source":
        """Read and parse `file`. Raises OSError, or UserError as `parse` does."""
        return cls.parse(file, (root / file).read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, file: str, text: str) -> "Source":
        """Raises UserError (of a Problem) if `text` is not valid Python."""
        source = cls(file, text)
        try:
            _ = source.tree  # parsed here, so that no later access can fail
        except SyntaxError as error:
            problem = Problem(file, error.lineno or 1, f"not valid Python: {error.msg}")
            raise UserError(problem) from None
        return source

    @cached_property
    def lines(self) -> list[str]:
        # Not splitlines(), which also cuts at form feeds, where Python counts no line.
        return self.text.removesuffix("\n").split("\n")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def scopes(self) -> list[str]:
        """The scope of each line: the name by which the manifest addresses it.

        `docstring` (of the module), `imports`, the dotted name of a function, the name of a class
        for its lines outside methods, `__main__`, and `module` for all else at the top level.
        Blank lines and comments belong to the statement below them. But a comment indented deeper
        than the statement above belongs to that one.
        """
        scopes = ["module"] * len(self.lines)

        def paint(body, owner, floor):  # the first `floor` lines belong to no statement here
            for node in body:
                first, last = self._extent(node, floor)
                scope = self._scope(node, owner)
                scopes[first:last] = [scope] * (last - first)
                if isinstance(node, ast.ClassDef):
                    paint(node.body, scope, node.lineno)
                floor = last
            return floor

        end = paint(self.tree.body, "", 0)
        if end < len(scopes):  # blank lines and comments at the end of the file
            scopes[end:] = [scopes[end - 1]] * (len(scopes) - end)
        return scopes

    def _scope(self, node, owner):
        if isinstance(node, _Definition):
            return f"{owner}.{node.name}" if owner else node.name
        if owner:
            return owner
        if isinstance(node, ast.Import | ast.ImportFrom):
            return "imports"
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            return "__main__"
        if node is self.tree.body[0] and ast.get_docstring(self.tree) is not None:
            return "docstring"
        return "module"

    def _extent(self, node, floor):
        """The lines [first, last) of a statement, the gap above and its trailing comments too."""
        first = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]) - 1
        while first > floor and self._is_gap(first - 1):
            first -= 1
        last = line = node.end_lineno
        while line < len(self.lines) and self._is_gap(line):
            text = self.lines[line]
            line += 1
            if len(text) - len(text.lstrip()) > node.col_offset:
                last = line
        return first, last

    def _is_gap(self, index):
        text = self.lines[index].strip()
        return not text or text.startswith("#")

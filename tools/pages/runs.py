"""The commands that pages show: which lines are run, and what their output must be.

    for lines, run in runs.of_all(root).items():
        run.blocks, run.pages, run.alone
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from tools import series
from tools.errors import UserError

from . import directives
from .shell import Ran

LIMIT = 300  # seconds per line, if the page names no other
Lines = tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """One place that shows a run: a directive with its options, or a code cell, which has none."""

    lines: Lines
    options: dict[str, str] = field(default_factory=dict)

    def problem(self, ran: list[Ran]) -> str | None:
        """How a run differs from what the page says; None if it does not."""
        try:
            return self._problem(ran)
        except (ValueError, re.error) as error:
            return f"an option is neither numbers nor a regular expression: {error}"

    def _problem(self, ran):
        output = "\n".join(one.output for one in ran)
        wanted = [0] * (len(self.lines) - 1) + [int(self.options.get("status", 0))]
        found = [one.status for one in ran]
        if found != wanted:
            return f"exit status {found}, but {wanted} was expected:\n{output}"
        expected = self.options.get("expect", "")
        if not re.search(expected, output, re.MULTILINE):
            return f"nothing in the output matches {expected!r}:\n{output}"
        text = self.shown(ran)
        if self.mark and not self.marked(text):
            return f"no line shown matches {self.mark!r}:\n{text}"
        return None

    @property
    def mark(self) -> str | None:
        return self.options.get("mark")

    def part(self, ran: list[Ran]) -> list[Ran]:
        """The lines that the page shows."""
        first, last = self._numbers("lines", (1, len(ran)))
        return ran[first - 1 : last]

    def shown(self, ran: list[Ran]) -> str:
        return "\n".join(self._shown(one) for one in self.part(ran))

    def marked(self, text: str) -> list[int]:
        """The numbers of the lines of output that `:mark:` names."""
        return [
            number for number, line in enumerate(text.split("\n"), 1)
            if re.search(self.mark, line) and not line.startswith(("$ ", "    "))
        ]  # fmt: skip

    def _shown(self, one):
        output = one.output.rstrip("\n").split("\n") if one.output.strip() else []
        head, tail = self._numbers("show", (len(output), 0))
        mark = self.mark or "(?!)"

        def is_left(at):
            return head <= at < len(output) - tail and not re.search(mark, output[at])

        lines = [f"$ {folded(one.line)}"]
        for left, run in groupby(range(len(output)), is_left):
            run = [output[at] for at in run]
            lines += [f"⋮ {len(run)} more lines"] if left and len(run) > 1 else run
        return "\n".join(lines)

    def _numbers(self, name, otherwise):
        found = self.options.get(name)
        return tuple(map(int, found.split())) if found else otherwise


@dataclass
class Run:
    """Lines that run one after the other, and every place that shows them."""

    lines: Lines
    blocks: list[Block] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)

    def problem(self, ran: list[Ran]) -> str | None:
        return next(filter(None, (block.problem(ran) for block in self.blocks)), None)

    def option(self, name: str) -> str | None:
        """What the first place that has an option says there."""
        found = (block.options[name] for block in self.blocks if name in block.options)
        return next(found, None)

    @property
    def limit(self) -> float:
        return float(self.option("timeout") or LIMIT)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else may run: it measures time, or needs the GPU for itself."""
        return bool(self.elsewhere) or self.option("alone") is not None

    @property
    def elsewhere(self) -> str | None:
        """Why only `record PAGE --elsewhere` runs it."""
        return self.option("elsewhere")


def of_all(root: Path) -> dict[Lines, Run]:
    """The runs of all pages, in the order of the pages' names; lines that are equal are one run."""
    found: dict[Lines, Run] = {}
    lessons = series.load_all(root)
    for page in pages(root):
        try:
            blocks = [*of_page(page, lessons)]
        except (SyntaxError, ValueError) as error:
            message = f"{page}: {error}: a code cell must be Python, its lab.run have literal lines"
            raise UserError(message) from None
        for block in blocks:
            run = found.setdefault(block.lines, Run(block.lines))
            run.blocks.append(block)
            if page.stem not in run.pages:
                run.pages.append(page.stem)
    return found


def pages(root: Path) -> list[Path]:
    """All pages, but those of lessons in beyond/ that somebody has deleted."""
    lessons = {lesson.page for lesson in series.load(root)}
    found = (root / "docs").glob("*.rst"), *map((root / "docs/pages").glob, ("*.py", "*.rst"))
    own = filter(series.own(root), (page for pages in found for page in pages))
    return sorted(p for p in own if not p.stem.startswith("beyond_") or p.stem in lessons)


def of_page(page: Path, lessons: series.Series) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        if lost := re.search(r"(?m)^# %%.*\[markdown\] *(\S.*)", text):
            raise UserError(f"{page}: no page shows what follows a cell's marker: {lost[1]}")
        yield from map(Block, in_cells(text))
        text = directives.prose(text)
    for found in directives.find(text, nested=True):
        if found.name in ("run", "terminal"):
            lines = tuple(directives.commands(found.body, lessons))
            yield Block(lines, found.options)


def in_cells(text: str) -> Iterator[Lines]:
    """The lines of each `lab.run("...", ...)` of a page's code."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.run":
            yield tuple(ast.literal_eval(argument) for argument in node.args)


def folded(line: str, width: int = 78) -> str:
    """A shell line, continued by backslashes between its words where it is long."""
    lines = [""]
    for word in re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", line):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)

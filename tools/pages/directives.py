"""The directives in a page's text, found without Sphinx."""

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools.series.model import Lesson, Series

_DIRECTIVE = re.compile(
    r"^( *)\.\. ([\w-]+):: *(.*)\n((?:\1[ \t]+:.*\n)*)((?:[ \t]*\n|\1[ \t]+.*\n?)*)", re.MULTILINE
)


@dataclass(frozen=True)
class Directive:
    """`.. name:: argument`, its options and its body; `start` and `end` are places in the text."""

    name: str
    argument: str
    options: dict[str, str]
    body: str
    start: int
    end: int


def find(text: str, nested: bool = False) -> Iterator[Directive]:
    """The directives at the left margin of a text; if `nested`, also those in lists and bodies."""
    for found in _DIRECTIVE.finditer(text):
        margin, name, argument, options, body = found.groups()
        options = dict(re.findall(r":([\w-]+): *(.*)", options))
        body = textwrap.dedent(body).strip()
        if nested or not margin:
            yield Directive(name, argument.strip(), options, body, found.start(), found.end())
        if nested:
            yield from find(body, nested)


def prose(page: str) -> str:
    """The text of a page in the percent format: its comments at the left margin."""
    return "\n".join(re.sub("^# ?", "", line) for line in page.split("\n"))


def commands(body: str, lessons: Series) -> list[str]:
    """The shell lines of a body: continued lines joined, `{multigpu}` and the like filled in."""
    for lesson in lessons:
        body = body.replace(f"{{{lesson.name}}}", lesson.run)
    return [line for line in re.sub(r"\\\n\s*", "", body).split("\n") if line.strip()]


def lessons_table(lessons: Iterable[Lesson]) -> str:
    """The body of the list-table for which `.. lessons-table::` stands."""
    rows = [("script", "what it adds", "changed lines", "page")]
    for lesson in lessons:
        added, removed = lesson.count()
        size = f"+{added} −{removed}" if lesson.parent else "the start"
        rows.append((f"``{lesson.file}``", lesson.title, size, f":doc:`{lesson.page}`"))
    return "\n".join("* - " + "\n  - ".join(row) for row in rows)

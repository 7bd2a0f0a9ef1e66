"""The directives in a page's text, found without Sphinx."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tools.series import Series

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


def find(text: str) -> Iterator[Directive]:
    """The directives at the left margin of a text."""
    return (found for margin, found in _all(text) if not margin)


def _all(text):
    """The directives of a text, each with the spaces before it: it may be in a list."""
    for found in _DIRECTIVE.finditer(text):
        margin, name, argument, options, body = found.groups()
        options = dict(re.findall(r":([\w-]+): *(.*)", options))
        body = textwrap.dedent(body).strip()
        yield margin, Directive(name, argument.strip(), options, body, found.start(), found.end())


def walk(text: str) -> Iterator[Directive]:
    """The directives of a text, and those in their bodies."""
    for _, found in _all(text):
        yield found
        yield from walk(found.body)


def prose(page: str) -> str:
    """The text of a page in the percent format: its comments at the left margin."""
    return "\n".join(re.sub("^# ?", "", line) for line in page.split("\n"))


def commands(body: str, lessons: Series) -> list[str]:
    """The shell lines of a body: continued lines joined, `{multigpu}` and the like filled in."""
    for lesson in lessons:
        body = body.replace(f"{{{lesson.name}}}", lesson.run)
    return [line for line in re.sub(r"\\\n\s*", "", body).split("\n") if line.strip()]

"""Python lines as HTML: highlighted in the context of the whole file, changed words marked."""

import re
from difflib import SequenceMatcher
from functools import lru_cache
from html import escape

from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

ALIKE = 0.5  # two lines less alike than this are unrelated, not one line edited


@lru_cache(maxsize=64)
def highlight(text):
    """The pieces of each line of a script, `(CSS class, text)`.

    Lex the whole file at once, so that a line inside a docstring is coloured as one.
    """
    lines = [[]]
    for kind, value in PythonLexer(stripnl=False).get_tokens(text):
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        first, *others = value.split("\n")
        for number, piece in enumerate([first, *others]):
            if number:
                lines.append([])
            if piece:
                lines[-1].append((STANDARD_TYPES[kind], piece))
    return lines


def to_html(pieces, marks=()):
    """A line as HTML; `marks` are the spans of columns that changed."""
    out, column = [], 0
    for css, text in pieces:
        inner = "".join(
            f"<mark>{escape(part)}</mark>" if marked else escape(part)
            for part, marked in _cut(text, column, marks)
        )
        out.append(f'<span class="{css}">{inner}</span>' if css else inner)
        column += len(text)
    return "".join(out)


def _cut(text, start, marks):
    """The text in parts, each wholly inside or wholly outside the marked columns."""
    inside = [any(a <= start + i < b for a, b in marks) for i in range(len(text))]
    part = 0
    for i in range(1, len(text) + 1):
        if i == len(text) or inside[i] != inside[part]:
            yield text[part:i], inside[part]
            part = i


def changed_words(removed, added):
    """The spans of each removed and each added line that its counterpart does not have.

    Lines are paired in order, each with the most similar one that is left. A line without a
    counterpart has no spans, because all of it changed.
    """
    old, new = [[] for _ in removed], [[] for _ in added]
    start = 0
    for i, line in enumerate(removed):
        ratios = [
            (SequenceMatcher(None, line.strip(), other.strip(), autojunk=False).ratio(), -j)
            for j, other in enumerate(added)
            if j >= start
        ]
        ratio, j = max(ratios, default=(0, 0))
        if ratio >= ALIKE:
            start = -j + 1
            old[i], new[-j] = _spans(line, added[-j])
    return old, new


def _spans(one, other):
    first, second = (list(re.finditer(r"\w+|\s+|[^\w\s]", line)) for line in (one, other))
    matcher = SequenceMatcher(None, [m[0] for m in first], [m[0] for m in second], autojunk=False)
    spans = [], []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            for found, words, a, b in ((spans[0], first, i1, i2), (spans[1], second, j1, j2)):
                if b > a and any(word[0].strip() for word in words[a:b]):
                    found.append((words[a].start(), words[b - 1].end()))
    return spans

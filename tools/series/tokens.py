"""The tokens of each line of a script, apart from its comments and whatever its layout is."""

import io
import keyword
import re
import tokenize
from itertools import pairwise

from .source import Source

_LAYOUT = {
    tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
# From Python 3.12 on an f-string is many tokens, until then it is one. Here it is one.
_OPEN = {getattr(tokenize, f"{kind}STRING_START", None) for kind in "FT"}
_CLOSE = {getattr(tokenize, f"{kind}STRING_END", None) for kind in "FT"}


def tokens(source: Source) -> tuple[list[list[str]], list[str]]:
    """For each line its tokens, and its comment ("" where there is none).

    A string of several lines is cut at its line breaks. A comma at the end of a line and before a
    closing bracket is left out: it comes and goes with the layout.
    """
    code, comments = [[] for _ in source.lines], [""] * len(source.lines)
    depth, start = 0, None
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        depth += (token.type in _OPEN) - (token.type in _CLOSE)
        start = start or token.start
        if depth:
            continue
        if token.type == tokenize.COMMENT:
            comments[start[0] - 1] = token.string
        elif token.type not in _LAYOUT:
            for row in range(start[0], token.end[0] + 1):
                first = start[1] if row == start[0] else 0
                last = token.end[1] if row == token.end[0] else None
                code[row - 1].append(source.lines[row - 1][first:last])
        start = None
    filled = [line for line in code if line]
    for line, following in pairwise(filled):
        if line[-1] == "," and following[0] in ")]}":
            line.pop()
    return code, comments


def words(line: list[str]) -> list[str]:
    """Names, numbers and signs, those inside of strings too: an f-string's names count."""
    return re.findall(r"\w+|[^\w\s]", " ".join(line))


def is_trivial(line: list[str]) -> bool:
    """Whether a line says so little that it may well stand in many places: `else:`, `return x`."""
    if line[:1] == ["import"] or "(" in line:
        return False
    nouns = [token for token in line if re.search(r"\w", token) and not keyword.iskeyword(token)]
    return len(nouns) < 2

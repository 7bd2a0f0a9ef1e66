"""Scripts and diffs as HTML: each line highlighted in the context of the whole file, changed words
marked. docs/_static/series.css shows a diff in one column or in two."""

import re
from difflib import SequenceMatcher
from functools import lru_cache
from html import escape
from itertools import groupby

import pygments
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools import series

ALIKE = 0.5  # two lines less alike than this are unrelated, not one line edited


def diff(stage):
    """How a stage differs from the one before: the lines near changes, the others folded."""
    added, removed = (sum(row.sign == sign and row.counted for row in stage.rows) for sign in "+-")
    parts = [
        f'<div class="lesson-diff"><div class="diff-head"><span class="diff-files">'
        f"{_title(stage.before)} → {_title(stage)}</span>"
        f'<span class="diff-count"><ins>+{added}</ins> <del>−{removed}</del></span></div>',
    ]
    marked = zip(_numbered(stage), series.near_changes(stage.rows), strict=True)
    runs = [(near, [one for one, _ in run]) for near, run in groupby(marked, lambda one: one[1])]
    for at, ((near, run), below) in enumerate(zip(runs, [*runs[1:], None], strict=True)):
        if near:
            if at == 0:  # else the fold above says it
                parts.append(f'<div class="diff-place">{_places(run)}</div>')
            parts.append(_pre(stage, run))
        else:
            what = f"{len(run)} line{'s' * (len(run) > 1)}"
            if any(row.changed and row.text.strip() for row, *_ in run):
                what += ", with changes of the docstring"
            what += f", then {_places(below[1])}" if below else ""
            parts.append(f"<details><summary>{what}</summary>{_pre(stage, run)}</details>")
    parts.append(
        '<details class="stage"><summary>The whole script at this point, '
        f"{_title(stage)}</summary>{_lines(stage.source)}</details></div>"
    )
    return "\n".join(parts)


def changed_lines(edit, stage, link):
    """Only the changed lines, under the title of the edit, which leads to its page."""
    head = f'<a href="{link}">{escape(edit.title)}</a>'
    changed = [one for one in _numbered(stage) if one[0].counted]
    parts = [f'<div class="lesson-diff whole changed-only"><div class="diff-head">{head}</div>']
    for _, rows in groupby(changed, lambda one: one[0].scope):
        rows = list(rows)
        parts.append(f'<div class="diff-place">{_places(rows)}</div>{_pre(stage, rows)}')
    return "\n".join([*parts, "</div>"])


def script(source):
    head = f'<div class="diff-head">{escape(source.file)}</div>'
    return f'<div class="lesson-diff whole">{head}{_lines(source)}</div>'


def _places(rows):
    """The definitions that these rows change."""
    scopes = dict.fromkeys(row.scope for row, *_ in rows if row.changed and row.text.strip())
    return "in " + ", ".join(f"<code>{escape(scope)}</code>" for scope in scopes)


def _title(stage):
    """Its name; if it is a file of the tree, the name of that file."""
    lesson = stage.lesson.parent if stage.number == 0 else stage.lesson
    return escape(lesson.file if stage.number == 0 or stage.is_last else stage.name)


def _numbered(stage):
    """Each row, its line number before and after (None if that side lacks it), and its marks."""
    old = new = 0
    for changed, run in groupby(stage.rows, lambda row: row.changed):
        run = list(run)
        sides = ([row.text for row in run if row.sign == sign] for sign in "-+")
        spans = dict(zip("-+", map(iter, changed_words(*sides)), strict=True))
        for row in run:
            old, new = old + (row.sign != "+"), new + (row.sign != "-")
            yield row, old, new, next(spans[row.sign]) if changed else ()


def _pre(stage, rows):
    """Lines in a grid of two columns; a page without room for both shows one, see series.css."""
    out, left, right = [], 0, 0
    for row, old, new, marks in rows:
        source = stage.before.source if row.sign == "-" else stage.source
        html = mark(highlight(source.text)[row.number - 1], marks)
        if row.sign == "-":
            left += 1
            out.append(_line("del", old, html, left))
        elif row.sign == "+":
            right += 1
            out.append(_line("ins", new, html, right))
        else:
            left = right = max(left, right) + 1
            out.append(_line("span", old, html, left, twin=True))
            out.append(_line("span", new, html, left))
    return _block(out)


def _line(tag, number, html, row, twin=False):
    more = ' aria-hidden="true"' if twin else ""
    css = "l twin" if twin else "l"
    return f'<{tag} class="{css}" data-n="{number}" style="--r:{row}"{more}>{html}\n</{tag}>'


def _lines(source):
    """A whole script with numbered lines."""
    return _block(
        f'<span class="l" data-n="{number}">{line}\n</span>'
        for number, line in enumerate(highlight(source.text)[: len(source.lines)], 1)
    )


def _block(lines):
    return f'<div class="highlight"><pre tabindex="0">{"".join(lines)}</pre></div>'


@lru_cache(maxsize=64)
def highlight(text):
    """The lines of a script as HTML.

    Lex the whole file at once, so that a line inside a docstring is coloured as one.
    """
    lexer, formatter = PythonLexer(stripnl=False), HtmlFormatter(nowrap=True)
    return pygments.highlight(text, lexer, formatter).split("\n")


def mark(html, spans):
    """Mark columns of a line of HTML, each part within its tag."""
    out, column = [], 0
    for tag, text in re.findall(r"(<[^>]*>)|([^<]+)", html):
        letters = enumerate(re.findall(r"&[^;]+;|.", text), column)
        out.append(tag)
        for inside, run in groupby(letters, lambda one: any(a <= one[0] < b for a, b in spans)):
            columns, part = zip(*run, strict=True)
            out.append(f"<mark>{''.join(part)}</mark>" if inside else "".join(part))
            column = columns[-1] + 1
    return "".join(out)


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

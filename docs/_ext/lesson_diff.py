"""The diff of an edit, beside the prose that explains it.

    .. lesson-diff:: multigpu
       :edit: distribute-the-data
       :confirmed: 3f2a51c08d7e

       Why the lines changed, and what breaks without them.

What it shows comes from tools/series. The build warns (and so, with -W, fails) about an edit that
is shown nowhere or twice, that has no prose, or that has changed since its prose was confirmed:
`python -m tools.pages confirm` writes the fingerprint of what stands there now.

    .. lesson-script:: multigpu

shows a whole script, its lines numbered, those that its parent has not marked.
"""

import re
from functools import cache
from html import escape
from itertools import groupby
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools import series
from tools.errors import UserError
from tools.pages.lessons import load
from tools.pages.shell import ROOT

from .code import changed_words, highlight, to_html

logger = logging.getLogger(__name__)


@cache
def lessons():
    return load()


class lesson_code(nodes.General, nodes.Element):
    """`html` for browsers; for everything else, and for the search, a literal block within."""


class LessonDiff(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar = {
        "edit": directives.unchanged_required,
        "confirmed": directives.unchanged,
    }
    has_content = True

    def run(self):
        name = self.options.get("edit", "")
        try:
            lesson = lessons()[self.arguments[0]]
            edit = lesson.edit(name)
        except UserError as error:
            raise self.error(str(error)) from None
        self.env.lesson_diffs.setdefault(self.env.docname, []).append((lesson.name, name))
        what, place = f"{lesson.name} {name}", self.get_location()
        if not self.content:
            logger.warning("%s has no prose: explain it below", what, location=place)
        if self.options.get("confirmed") != edit.fingerprint:
            logger.warning(
                "the prose of %s was confirmed for %s, but its lines are %s now: read both again, "
                "then run  python -m tools.pages confirm %s",
                what, self.options.get("confirmed", "nothing"), edit.fingerprint, what,
                location=place,
            )  # fmt: skip
        rows = edit.rows
        shown = zip(rows, series.near_changes(rows), strict=True)
        text = "\n".join((row.sign + row.text).rstrip() for row, near in shown if near)
        node = lesson_code("", html=diff_html(edit), ids=[f"diff-{lesson.name}-{name}"])
        node += nodes.literal_block(text, text, language="diff")
        return [node, *self.parse_content_to_nodes()]


class LessonScript(SphinxDirective):
    required_arguments = 1

    def run(self):
        try:
            lesson = lessons()[self.arguments[0]]
        except UserError as error:
            raise self.error(str(error)) from None
        node = lesson_code("", html=script_html(lesson))
        node += nodes.literal_block(lesson.source.text, lesson.source.text, language="python")
        return [node]


def diff_html(edit):
    lesson, rows = edit.lesson, edit.rows
    added, removed = (sum(row.sign == sign for row in edit.lines) for sign in "+-")
    parts = [
        '<div class="lesson-diff">',
        f'<div class="diff-head"><span class="diff-files">{escape(lesson.parent.file)} → '
        f'<a href="{file_link(lesson)}">{escape(lesson.file)}</a></span>'
        f'<span class="diff-count"><ins>+{added}</ins> <del>−{removed}</del></span></div>',
    ]
    triples = zip(rows, series.near_changes(rows), word_marks(rows), strict=True)
    first = True
    for visible, run in groupby(triples, lambda triple: triple[1]):
        run = list(run)
        body = pre(lesson, [(row, mark) for row, _, mark in run])
        if visible:
            change = next((row for row, _, _ in run if row.changed and row.text.strip()), run[0][0])
            number = next((row.number for row, _, _ in run if row.sign != "-"), 1)
            parts.append(
                f'<div class="diff-place"><a href="#{anchor(lesson, number)}">line {number}</a>, '
                f"in <code>{escape(change.scope)}</code></div>{body}"
            )
            first = False
        else:
            lines = f"{len(run)} unchanged line{'s' * (len(run) > 1)}"
            parts.append(f"<details><summary>{lines}{' above' * first}</summary>{body}</details>")
    return "\n".join([*parts, "</div>"])


def pre(lesson, rows):
    """Lines in a grid of two columns; a page without room for both shows one, see series.css."""
    out, left, right = [], 0, 0
    for row, mark in rows:
        source = lesson.parent.source if row.sign == "-" else lesson.source
        code = to_html(highlight(source.text)[row.number - 1], mark)
        if row.sign == "-":
            left += 1
            out.append(line("del", row.number, code, left))
        elif row.sign == "+":
            right += 1
            out.append(line("ins", row.number, code, right))
        else:
            left = right = max(left, right) + 1
            out.append(line("span", row.number, code, left))
            out.append(line("span", row.number, code, left, twin=True))
    return f'<div class="highlight"><pre tabindex="0">{"".join(out)}</pre></div>'


def line(tag, number, code, row, twin=False):
    more = ' aria-hidden="true"' if twin else ""
    css = "l twin" if twin else "l"
    return f'<{tag} class="{css}" data-n="{number}" style="--r:{row}"{more}>{code}\n</{tag}>'


def word_marks(rows):
    marks = []
    for _, run in groupby(rows, lambda row: row.changed):
        run = list(run)
        old, new = ([row.text for row in run if row.sign == sign] for sign in "-+")
        spans = dict(zip("-+", map(iter, changed_words(old, new)), strict=True))
        marks += [next(spans[row.sign]) if row.changed else () for row in run]
    return marks


def script_html(lesson):
    changed = {row.number for row in lesson.diff() if row.sign == "+"}
    lines = [
        f'<{"ins" if n in changed else "span"} class="l" id="{anchor(lesson, n)}" data-n="{n}">'
        f"{to_html(pieces)}\n</{'ins' if n in changed else 'span'}>"
        for n, pieces in enumerate(highlight(lesson.source.text)[: len(lesson.source.lines)], 1)
    ]
    return (
        '<div class="lesson-diff whole"><div class="diff-head"><span class="diff-files">'
        f'<a href="{file_link(lesson)}">{escape(lesson.file)}</a></span></div>'
        f'<div class="highlight"><pre tabindex="0">{"".join(lines)}</pre></div></div>'
    )


def anchor(lesson, number):
    return f"{lesson.name}-L{number}"


def file_link(lesson):
    path = (lesson.root / lesson.file).relative_to(ROOT)
    return f"../scripts/{path.as_posix()}"  # html_extra_path puts them there


def check_complete(app, env):
    """Every edit of the series stands on exactly one page, in whose section stands its title."""
    places = {}
    for docname, keys in env.lesson_diffs.items():
        for key in keys:
            places.setdefault(key, []).append(docname)
    for lesson in lessons():
        for problem in lesson.problems:
            logger.warning("%s", problem)
        for edit in lesson.edits:
            found = places.get((lesson.name, edit.name), [])
            what = f"{lesson.name} {edit.name}"
            if not found:
                first = edit.lines[0] if edit.lines else None
                where = f" ({lesson.file}, {first.scope}: {first.text.strip()!r})" if first else ""
                logger.warning("no page shows %s%s: it belongs on %s", what, where, lesson.page)
            elif len(found) > 1:
                logger.warning("%s is shown more than once: on %s", what, " and on ".join(found))
            elif found[0].rpartition("/")[2] != lesson.page:
                logger.warning("%s is shown on %s, not on %s", what, found[0], lesson.page)


def link_lines(app, doctree):
    """The number of a line leads to the whole script, or to the file if that is on another page."""
    found = list(doctree.findall(lesson_code))
    whole = {name for node in found for name in re.findall(r'id="(\w+)-L1"', node["html"])}
    for node in found:
        for name in set(re.findall(r'href="#(\w+)-L\d+"', node["html"])) - whole:
            link = f'href="{file_link(lessons()[name])}"'
            node["html"] = re.sub(rf'href="#{name}-L\d+"', link, node["html"])


def check_titles(app, doctree):
    for node in doctree.findall(lesson_code):
        match = next((re.fullmatch(r"diff-([^-]+)-(.+)", name) for name in node["ids"]), None)
        if match:
            edit = lessons()[match[1]].edit(match[2])
            section = node.parent
            title = section.next_node(nodes.title).astext() if section.children else ""
            if title != edit.title:
                logger.warning(
                    "%s %s stands under %r, but its title is %r", *match.groups(), title,
                    edit.title, location=node,
                )  # fmt: skip


def start(app):
    if not hasattr(app.env, "lesson_diffs"):
        app.env.lesson_diffs = {}


def purge(app, env, docname):
    env.lesson_diffs.pop(docname, None)


def visit_html(self, node):
    ids = "".join(f'<span id="{name}"></span>' for name in node["ids"])
    self.body.append(ids + node["html"])
    raise nodes.SkipNode


def visit_other(self, node):
    pass


def setup(app):
    plain = (visit_other, visit_other)
    app.add_node(lesson_code, html=(visit_html, None), text=plain, latex=plain)
    app.add_directive("lesson-diff", LessonDiff)
    app.add_directive("lesson-script", LessonScript)
    app.connect("builder-inited", start)
    app.connect("env-purge-doc", purge)
    app.connect("doctree-read", check_titles)
    app.connect("doctree-read", link_lines)
    app.connect("env-check-consistency", check_complete)

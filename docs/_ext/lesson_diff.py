"""The diff of an edit, beside the prose that explains it.

    .. lesson-diff:: multigpu
       :edit: distribute-the-data
       :confirmed: 3f2a51c08d7e

       Why the lines changed.

It shows how the edit changes the stage before, such as multigpu@2, into its own, multigpu@3. Both
are scripts that run. The build warns (and with -W fails) about an edit that is shown nowhere or
twice, that has no prose, whose stage no command of its page runs, or that has changed since its
prose was confirmed: `python -m tools.pages confirm` writes the fingerprint of its current lines.

    .. lesson-script:: multigpu

shows a whole script with numbered lines.
"""

import re
from functools import cache
from html import escape
from itertools import groupby
from pathlib import PurePath
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools import series
from tools.errors import UserError
from tools.pages.lessons import load
from tools.series import stages

from .code import changed_words, highlight, to_html

logger = logging.getLogger(__name__)


@cache
def lessons():
    return load()


class lesson_code(nodes.General, nodes.Element):
    """`html` for browsers; a literal block inside for the search and all other builders."""


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
            edit = lessons()[self.arguments[0]].edit(name)
            stage = stages.after(edit)
        except UserError as error:
            raise self.error(str(error)) from None
        lesson = edit.lesson
        self.env.lesson_diffs.setdefault(self.env.docname, []).append((lesson.name, name))
        what, place = f"{lesson.name} {name}", self.get_location()
        if not self.content:
            logger.warning("%s has no prose: explain it below", what, location=place)
        if self.options.get("confirmed") != stage.fingerprint:
            logger.warning(
                "the prose of %s was confirmed for %s, but its lines are %s now: read both again, "
                "then run  python -m tools.pages confirm %s",
                what, self.options.get("confirmed", "nothing"), stage.fingerprint, what,
                location=place,
            )  # fmt: skip
        shown = zip(stage.rows, series.near_changes(stage.rows), strict=True)
        text = "\n".join((row.sign + row.text).rstrip() for row, near in shown if near)
        node = lesson_code("", html=diff_html(stage), ids=[f"diff-{lesson.name}-{name}"])
        node += nodes.literal_block(text, text, language="diff")
        return [node, *self.parse_content_to_nodes()]


class LessonScript(SphinxDirective):
    required_arguments = 1

    def run(self):
        try:
            source = lessons()[self.arguments[0]].source
        except UserError as error:
            raise self.error(str(error)) from None
        head = f'<div class="diff-head">{escape(source.file)}</div>'
        html = f'<div class="lesson-diff whole">{head}{script_html(source)}</div>'
        node = lesson_code("", html=html)
        node += nodes.literal_block(source.text, source.text, language="python")
        return [node]


def diff_html(stage):
    rows = stage.rows
    added, removed = (sum(row.sign == sign and row.counted for row in rows) for sign in "+-")
    parts = [
        '<div class="lesson-diff">',
        f'<div class="diff-head"><span class="diff-files">{title(stage.before)} → '
        f'{title(stage)}</span><span class="diff-count"><ins>+{added}</ins> '
        f"<del>−{removed}</del></span></div>",
    ]
    marked = zip(numbered(rows), word_marks(rows), series.near_changes(rows), strict=True)
    runs = [(visible, list(run)) for visible, run in groupby(marked, lambda one: one[-1])]
    for at, ((visible, run), below) in enumerate(zip(runs, [*runs[1:], None], strict=True)):
        body = pre(stage, [(*one, marks) for one, marks, _ in run])
        if visible:
            if at == 0:  # else the fold above says it
                parts.append(f'<div class="diff-place">{places(run)}</div>')
            parts.append(body)
        else:
            what = f"{len(run)} line{'s' * (len(run) > 1)}"
            if any(row.changed and row.text.strip() for (row, *_), *_ in run):
                what += ", with changes of the docstring"
            what += f", then {places(below[1])}" if below else ""
            parts.append(f"<details><summary>{what}</summary>{body}</details>")
    parts.append(
        f'<details class="stage"><summary>The whole script at this point, {title(stage)}</summary>'
        f"{script_html(stage.source)}</details></div>"
    )
    return "\n".join(parts)


def places(run):
    """The definitions that these rows change."""
    scopes = dict.fromkeys(row.scope for (row, *_), *_ in run if row.changed and row.text.strip())
    return "in " + ", ".join(f"<code>{escape(scope)}</code>" for scope in scopes)


def title(stage):
    """Its name; if it is a file of the tree, the name of that file."""
    lesson = stage.lesson.parent if stage.number == 0 else stage.lesson
    return escape(lesson.file if stage.number == 0 or stage.is_last else stage.name)


def numbered(rows):
    """Each row with its line number before and after, None if that side lacks the line."""
    old = new = 0
    for row in rows:
        old, new = old + (row.sign != "+"), new + (row.sign != "-")
        yield row, old if row.sign != "+" else None, new if row.sign != "-" else None


def pre(stage, rows):
    """Lines in a grid of two columns; a page without room for both shows one, see series.css."""
    out, left, right = [], 0, 0
    for row, old, new, marks in rows:
        source = stage.before.source if row.sign == "-" else stage.source
        code = to_html(highlight(source.text)[row.number - 1], marks)
        if row.sign == "-":
            left += 1
            out.append(line("del", old, code, left))
        elif row.sign == "+":
            right += 1
            out.append(line("ins", new, code, right))
        else:
            left = right = max(left, right) + 1
            out.append(line("span", old, code, left, twin=True))
            out.append(line("span", new, code, left))
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


def script_html(source):
    lines = [
        f'<span class="l" data-n="{number}">{to_html(pieces)}\n</span>'
        for number, pieces in enumerate(highlight(source.text)[: len(source.lines)], 1)
    ]
    return f'<div class="highlight"><pre tabindex="0">{"".join(lines)}</pre></div>'


def check_complete(app, env):
    """Every edit of the series is on its page, once, and the page runs its stage."""
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
                logger.warning("no page shows %s%s: it belongs on %s", what, where, edit.page)
            elif len(found) > 1:
                logger.warning("%s is shown more than once: on %s", what, " and on ".join(found))
            elif found[0].rpartition("/")[2] != edit.page:
                logger.warning("%s is shown on %s, not on %s", what, found[0], edit.page)
            elif lesson.has_stages:
                stage = stages.after(edit)
                if not is_run(stage, env.commands.get(found[0], [])):
                    logger.warning("%s shows %s, and runs it nowhere", found[0], stage.name)


def is_run(stage, lines):
    """Whether these shell lines run a stage."""
    name = stage.name
    if stage.is_last:
        words = stage.lesson.command[1]
        name = words[words.index("-m") + 1] if "-m" in words else PurePath(stage.lesson.file).name
    return any(name in re.split(r"[\s/]", line) for line in lines)


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
    app.connect("env-check-consistency", check_complete)

"""The changed lines of an edit, without its prose, which another page has.

    .. changed-lines:: multigpu
       :edit: distribute-the-data

`lesson-diff` shows each edit once, with its prose; its checks ignore this directive.
"""

from html import escape
from itertools import groupby
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from tools.errors import UserError
from tools.series import stages

from .lesson_diff import lesson_code, lessons, numbered, pre, word_marks


class ChangedLines(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar = {"edit": directives.unchanged_required}

    def run(self):
        try:
            edit = lessons()[self.arguments[0]].edit(self.options.get("edit", ""))
            stage = stages.after(edit)
        except UserError as error:
            raise self.error(str(error)) from None
        marked = zip(numbered(stage.rows), word_marks(stage.rows), strict=True)
        changed = [(*one, marks) for one, marks in marked if one[0].counted]
        text = "\n".join(row.sign + row.text for row, *_ in changed)
        page = self.env.app.builder.get_relative_uri(self.env.docname, f"series/{edit.page}")
        node = lesson_code("", html=html(edit, stage, changed, page))
        node += nodes.literal_block(text, text, language="diff")
        return [node]


def html(edit, stage, changed, page):
    where = f"{page}#diff-{edit.lesson.name}-{edit.name}"
    parts = [
        '<div class="lesson-diff whole changed-only">',
        f'<div class="diff-head"><a href="{where}">{escape(edit.title)}</a></div>',
    ]
    for scope, rows in groupby(changed, lambda one: one[0].scope):
        parts.append(f'<div class="diff-place">in <code>{escape(scope)}</code></div>')
        parts.append(pre(stage, rows))
    return "\n".join([*parts, "</div>"])


def setup(app):
    app.add_directive("changed-lines", ChangedLines)

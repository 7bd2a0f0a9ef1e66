"""The diff of an edit, beside the prose that explains it.

    .. lesson-diff:: multigpu
       :edit: distribute-the-data
       :confirmed: 3f2a51c08d7e

       Why the lines changed.

It shows how the edit changes the stage before, such as multigpu@2, into its own, multigpu@3. Both
are scripts that run. The build warns (and with -W fails) about an edit that is shown nowhere or
twice, that has no prose, whose stage no command of its page runs, or that has changed since its
prose was confirmed: `python -m tools.pages confirm` writes the fingerprint of its current lines.

    .. changed-lines:: multigpu
       :edit: distribute-the-data

shows the changed lines of an edit once more, without its prose, and

    .. lesson-script:: multigpu

shows a whole script with numbered lines.
"""

import re
from functools import cache
from pathlib import PurePath
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools import series
from tools.errors import UserError
from tools.series import stages

from . import code

logger = logging.getLogger(__name__)


@cache
def lessons():
    """The lessons of the series, followed by those of single pages."""
    return series.load_all()


class lesson_code(nodes.General, nodes.Element):
    """`html` for browsers; a literal block inside for the search and all other builders."""


def shown(html, text, language, **attributes):
    block = nodes.literal_block(text, text, language=language, ran=True)
    return lesson_code("", block, html=html, **attributes)


class OfLesson(SphinxDirective):
    """A directive about a lesson, and about one of its edits if it has this option."""

    required_arguments = 1

    def run(self):
        try:
            lesson = lessons()[self.arguments[0]]
            if "edit" not in self.option_spec:
                return self.show(lesson)
            edit = lesson.edit(self.options.get("edit", ""))
            return self.show(edit, stages.after(edit))
        except UserError as error:
            raise self.error(str(error)) from None


class LessonDiff(OfLesson):
    option_spec: ClassVar = {
        "edit": directives.unchanged_required,
        "confirmed": directives.unchanged,
    }
    has_content = True

    def show(self, edit, stage):
        self.env.metadata[self.env.docname].setdefault("edits", []).append(named(edit))
        for problem in self.problems(edit, stage):
            logger.warning("%s", problem, location=self.get_location())
        rows = zip(stage.rows, series.near_changes(stage.rows), strict=True)
        text = "\n".join((row.sign + row.text).rstrip() for row, near in rows if near)
        place = f"diff-{edit.lesson.name}-{edit.name}"
        node = shown(code.diff(stage), text, "diff", ids=[place])
        return [node, *self.parse_content_to_nodes()]

    def problems(self, edit, stage):
        what, title = named(edit), self.state.parent.next_node(nodes.title).astext()
        confirmed = self.options.get("confirmed", "nothing")
        if not self.content:
            yield f"{what} has no prose: explain it below"
        if title != edit.title:
            yield f"{what} is under {title!r}, but its title is {edit.title!r}"
        if confirmed != stage.fingerprint:
            yield (
                f"the prose of {what} was confirmed for {confirmed}, but its lines are "
                f"{stage.fingerprint} now: read both again, then run  "
                f"python -m tools.pages confirm {what}"
            )


class ChangedLines(OfLesson):
    option_spec: ClassVar = {"edit": directives.unchanged_required}

    def show(self, edit, stage):
        text = "\n".join(row.sign + row.text for row in stage.rows if row.counted)
        page = self.env.app.builder.get_relative_uri(self.env.docname, f"series/{edit.page}")
        where = f"{page}#diff-{edit.lesson.name}-{edit.name}"
        return [shown(code.changed_lines(edit, stage, where), text, "diff")]


class LessonScript(OfLesson):
    option_spec: ClassVar = {}

    def show(self, lesson):
        return [shown(code.script(lesson.source), lesson.source.text, "python")]


def named(edit):
    return f"{edit.lesson.name} {edit.name}"


def check_complete(app, env):
    """Every edit of the series is on its page, once, and the page runs its stage."""
    places = {}
    for docname, kept in env.metadata.items():
        for what in kept.get("edits", ()):
            places.setdefault(what, []).append(docname)
    for lesson in lessons():
        for problem in lesson.problems:
            logger.warning("%s", problem)
        for edit in lesson.edits:
            if problem := misplaced(edit, places.get(named(edit), []), env):
                logger.warning("%s", problem)


def misplaced(edit, found, env):
    what = named(edit)
    if not found:
        first = edit.lines[0] if edit.lines else None
        file = edit.lesson.file
        where = f" ({file}, {first.scope}: {first.text.strip()!r})" if first else ""
        return f"no page shows {what}{where}: it belongs on {edit.page}"
    if len(found) > 1:
        return f"{what} is shown more than once: on {' and on '.join(found)}"
    if found[0].rpartition("/")[2] != edit.page:
        return f"{what} is shown on {found[0]}, not on {edit.page}"
    if edit.lesson.has_stages:
        stage = stages.after(edit)
        if not is_run(stage, env.metadata[found[0]].get("commands", [])):
            return f"{found[0]} shows {stage.name}, and runs it nowhere"
    return None


def is_run(stage, lines):
    """Whether these shell lines run a stage."""
    names = {stage.name}
    if stage.is_last:
        words = stage.lesson.command[1]
        module = words[words.index("-m") + 1 :][:1] if "-m" in words else []
        names = {stage.lesson.name, PurePath(stage.lesson.file).name, *module}
    return any(names & {*re.split(r"[\s/]", line)} for line in lines)


def visit_html(self, node):
    self.body += [f'<span id="{name}"></span>' for name in node["ids"]]
    self.body.append(node["html"])
    raise nodes.SkipNode


def setup(app):
    app.add_node(lesson_code, html=(visit_html, None), text=(lambda *_: None,) * 2)
    app.add_directive("lesson-diff", LessonDiff)
    app.add_directive("changed-lines", ChangedLines)
    app.add_directive("lesson-script", LessonScript)
    app.connect("env-check-consistency", check_complete)

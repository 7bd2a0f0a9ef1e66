"""What an instructor says before each edit of a lesson, in two sentences.

    .. say:: multigpu

       start-the-processes
          What it is about. What to look at.

The build fails unless every edit of the lesson is there, in the order of lessons.toml, with two
sentences. The page shows each edit by its title and name.
"""

import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from tools.errors import UserError

from .lesson_diff import lessons

END = re.compile(r"[.?!](?=\s|$)")  # of a sentence


class Say(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        try:
            lesson = lessons()[self.arguments[0]]
        except UserError as error:
            raise self.error(str(error)) from None
        parsed = self.parse_content_to_nodes()
        items = [item for node in parsed for item in node.findall(nodes.definition_list_item)]
        found, wanted = [item[0].astext() for item in items], [edit.name for edit in lesson.edits]
        if found != wanted:
            raise self.error(
                f"the edits of {lesson.name} are {', '.join(wanted)}, in this order, but there are "
                f"sentences for {', '.join(found) or 'none'}"
            )
        for edit, item in zip(lesson.edits, items, strict=True):
            count = len(END.findall(item[-1].astext()))
            if count != 2:
                raise self.error(f"{edit.name} has {count} sentences: say it in two")
            item[0][:] = [nodes.Text(f"{edit.title} "), nodes.literal("", edit.name)]
        return parsed


def setup(app):
    app.add_directive("say", Say)

"""The end of a page: what the reader can do now, questions, an exercise, and where to go next.

    What you can do now
    -------------------

    .. page-end:: 2_multigpu
       :next: :doc:`3_fault_tolerance`
       :also: torchrun <torch.distributed.run>

       You can now …

       .. fold:: A question?

          Its answer.

The argument is the name of the page. The command of the exercise is derived from lessons.toml, and
the links to PyTorch's documentation from the lines that the page's diffs add; `:also:` adds links
to what those lines do not name. The build fails for a page docs/pages/NAME.py that does not end
like this, that asks fewer than two questions, or whose `:next:` does not begin with the next
chapter.
"""

from itertools import pairwise
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools.pages import ends

from .around import series
from .fold import fold
from .lesson_diff import lessons

logger = logging.getLogger(__name__)
QUESTIONS = 2


class PageEnd(SphinxDirective):
    required_arguments = 1
    option_spec: ClassVar = dict.fromkeys(("next", "also"), directives.unchanged_required)
    has_content = True

    def run(self):
        page = self.env.docname.rpartition("/")[2]
        if self.arguments[0] != page or "next" not in self.options:
            raise self.error(f"write page-end:: {page}, with the option :next:")
        self.env.metadata[self.env.docname]["next"] = self.options["next"]
        text = self.parse_content_to_nodes()
        if sum(isinstance(node, fold) for node in text) < QUESTIONS:
            raise self.error(f"the end of a page asks {QUESTIONS} questions, each in a fold")
        also = self.options.get("also", "")
        lines = ends.lines(lessons(), page, self.options["next"], also)
        links = self.parse_text_to_nodes("\n\n".join(lines))
        for literal in (one for link in links for one in link.findall(nodes.literal)):
            literal["ran"] = True  # ends.lines has asked the workshop for this exercise
        return [nodes.container("", *text, *links, classes=["page-end"])]


def check_end(app, doctree):
    page = app.env.docname.rpartition("/")[2]
    if Path(app.srcdir, "pages", f"{page}.py").is_file():
        title, end = [*list(doctree.findall(nodes.section))[-1], nodes.comment()][:2]
        if "page-end" not in end.get("classes", ()):
            logger.warning("this page must end with a page-end", location=title)


def check_order(app, env):
    for page, following in pairwise(series(env)):
        expected = f":doc:`{following.rpartition('/')[2]}`"
        if not env.metadata[page].get("next", "").startswith(expected):
            logger.warning(f"its :next: must begin with {expected}", location=page)


def setup(app):
    app.add_directive("page-end", PageEnd)
    app.connect("doctree-read", check_end)
    app.connect("env-check-consistency", check_order)

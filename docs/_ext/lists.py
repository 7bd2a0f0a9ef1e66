"""What pages take from elsewhere.

.. lessons-table::      the lessons, each with its size and its page

.. pages-list::         the pages of the series by part, and how long each takes

.. beyond-toctree::     the pages of the lessons in beyond/, in the order of lessons.toml
"""

import textwrap

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from tools.pages.directives import lessons_table
from tools.series import load

from .around import parts


class LessonsTable(SphinxDirective):
    def run(self):
        rows = textwrap.indent(lessons_table(load()), "   ")
        return self.parse_text_to_nodes(f".. list-table::\n   :header-rows: 1\n\n{rows}")


class BeyondToctree(SphinxDirective):
    def run(self):
        lessons = [one for one in load() if one.file.startswith("beyond/")]
        pages = dict.fromkeys(f"series/{one.page}" for one in lessons)  # some share one
        options = [":caption: Beyond the series", ":maxdepth: 1", ":hidden:", ""]
        return self.parse_text_to_nodes("\n   ".join([".. toctree::", *options, *pages]))


class pages_list(nodes.General, nodes.Element):
    """Replaced when all pages have been read."""


class PagesList(SphinxDirective):
    def run(self):
        return [pages_list()]


def fill(app, doctree, docname):
    env = app.env
    for place in list(doctree.findall(pages_list)):
        found, number, total = [], 1, 0
        for part in parts(env):
            items = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".", start=number)
            for page in part["includefiles"]:
                facts, address = env.metadata[page], app.builder.get_relative_uri(docname, page)
                link = nodes.reference("", env.titles[page].astext(), internal=True, refuri=address)
                text = nodes.Text(f", {facts['minutes']} minutes. {facts['description']}")
                items += nodes.list_item("", addnodes.compact_paragraph("", "", link, text))
                total += facts["minutes"]
            found += [nodes.paragraph("", "", nodes.strong("", part["caption"])), items]
            number += len(items)
        words = f"In all {total} minutes, without the folded sections."
        place.replace_self([*found, nodes.paragraph("", words)])


def setup(app):
    app.add_node(pages_list)
    app.add_directive("lessons-table", LessonsTable)
    app.add_directive("pages-list", PagesList)
    app.add_directive("beyond-toctree", BeyondToctree)
    app.connect("doctree-resolved", fill)

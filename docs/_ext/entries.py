"""A list of the entries of a page, to jump to; entries.js adds a filter.

    .. entries::

An entry is a section without subsections. Its index terms become hidden text in it, so that the
filter finds them. They lead to its heading, as main terms, so that Sphinx's search lists it first.
"""

from html import escape

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective


class entries(nodes.General, nodes.Element):
    """The place of the list, until the whole page is read."""


class Entries(SphinxDirective):
    def run(self):
        return [entries()]


class MakeLists(SphinxTransform):
    default_priority = 800  # before 850, when Sphinx collects the index

    def apply(self):
        for place in list(self.document.findall(entries)):
            links = nodes.bullet_list(classes=["entries"])
            for section in self.document.findall(nodes.section):
                if not section.next_node(nodes.section):
                    links += link_to(section)
                    section += lead_here(section)
            place.replace_self(links)


def link_to(section):
    words = [child.deepcopy() for child in section.next_node(nodes.title).children]
    link = nodes.reference("", "", *words, refid=section["ids"][0], internal=True)
    return nodes.list_item("", nodes.paragraph("", "", link))


def lead_here(section):
    """Let the section's index terms lead to its heading; return them as hidden text."""
    words = []
    for index in section.findall(addnodes.index):
        terms = index["entries"]
        words += [term for _, term, *_ in terms]
        index["entries"] = [(one[0], one[1], section["ids"][0], "main", one[4]) for one in terms]
    return nodes.raw("", f"<span hidden>{escape('; '.join(words))}</span>", format="html")


def setup(app):
    app.add_directive("entries", Entries)
    app.add_transform(MakeLists)

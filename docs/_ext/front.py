"""What the front page takes from elsewhere.

.. figure-of:: 3_fault_tolerance 1      the first figure of a page, with its words as caption

.. clone::                               the command that fetches and runs everything

.. pages-list::                          the pages of the series, and how long each takes
"""

import re
from html import unescape

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from .around import is_on_github, series
from .lesson_diff import lesson_code


class pages_list(nodes.General, nodes.Element):
    """Replaced when all pages have been read."""


class FigureOf(SphinxDirective):
    required_arguments = 2

    def run(self):
        page, number = self.arguments
        file = f"{self.env.srcdir}/series/images/sphx_glr_{page}_{int(number):03}.svg"
        try:
            with open(file, encoding="utf-8") as opened:
                svg = opened.read()
        except OSError:
            raise self.error(f"{page} has no figure number {number}") from None
        words = re.search('aria-label="(.*?)"', svg)[1]
        html = f"<figure>{svg}<figcaption>{words}</figcaption></figure>"
        node = lesson_code("", html=html)
        text = f"Figure: {unescape(words)}"
        node += nodes.literal_block(text, text, language="text", ran=True)
        return [node]


class Clone(SphinxDirective):
    def run(self):
        repository = self.config.repository.rstrip("/")
        name = repository.removesuffix(".git").rpartition("/")[2]
        before = f"git clone {repository} && cd {name} && " if repository else ""
        text = f"{before}make run"
        block = nodes.literal_block(text, f"$ {text}", language="console", classes=["run"])
        block["ran"] = True
        self.env.not_run.setdefault(self.env.docname, []).append(text)
        parts = [nodes.container("", block, classes=["run-block"])]
        if not repository:
            parts.insert(0, nodes.paragraph("", "Clone the repository. In its folder:"))
        links = {"See the repository": repository} if repository else {}
        if is_on_github(repository):
            address = repository.replace("github.com", "codespaces.new")
            links["Open it in Codespaces"] = address
        buttons = nodes.bullet_list(classes=["buttons"])
        for words, address in links.items():
            link = nodes.reference("", words, refuri=address, internal=False)
            buttons += nodes.list_item("", nodes.paragraph("", "", link))
        return [*parts, buttons] if links else parts


class PagesList(SphinxDirective):
    def run(self):
        return [pages_list("")]


def fill(app, doctree, docname):
    env = app.env
    for place in list(doctree.findall(pages_list)):
        items = nodes.bullet_list()
        for page in series(env):
            link = nodes.reference(
                "", env.titles[page].astext(), internal=True,
                refuri=app.builder.get_relative_uri(docname, page),
            )  # fmt: skip
            text = f", {env.minutes[page]} minutes. {env.descriptions[page]}"
            items += nodes.list_item("", addnodes.compact_paragraph("", "", link, nodes.Text(text)))
        total = sum(env.minutes[page] for page in series(env))
        note = nodes.paragraph(
            "", f"In all about {round(total / 60)} hours, without the folded sections."
        )
        place.replace_self([items, note])


def setup(app):
    app.add_node(pages_list)
    app.add_directive("figure-of", FigureOf)
    app.add_directive("clone", Clone)
    app.add_directive("pages-list", PagesList)
    app.connect("doctree-resolved", fill)
    app.connect("env-get-outdated", lambda *_: ["index"])  # a figure of a page may have changed

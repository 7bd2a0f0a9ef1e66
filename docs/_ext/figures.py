"""Figures that no code cell of the page has drawn.

    .. diagram:: ddp-step

       What to see.                      docs/diagrams/ddp-step.svg, and its caption

    .. figure-of:: 3_fault_tolerance 1   the first figure of a page, its words as the caption

    .. play:: ring

       The caption.                      a figure to play with

The first two put the SVG itself into the page, so that it has the colour of the text around it. Its
`aria-label` describes it to screen readers, and is the figure of the text build. The third is drawn
by docs/_static/play-ring.js. If the figure of a code cell is directly above, it hides that figure,
which readers without JavaScript see.
"""

import re
import textwrap
from html import escape, unescape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


def figure(inside, caption, attributes=""):
    start, end = f"<figure{attributes}>{inside}<figcaption>", "</figcaption></figure>"
    return [raw(start), *caption, raw(end)]


def raw(text, kind="html"):
    return nodes.raw("", text, format=kind)


def read(directive, file):
    path = Path(directive.env.srcdir, file)
    if not path.is_file():
        raise directive.error(f"there is no docs/{file}")
    return path.read_text(encoding="utf-8")


def described(svg):
    """What an SVG says to those who cannot see it, and the same as a node of the text build."""
    words = unescape(re.search('aria-label="(.*?)"', svg)[1])
    return words, raw(textwrap.fill(f"Figure: {words}", 70), "text")


class Diagram(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        self.assert_has_content()
        svg = read(self, f"diagrams/{self.arguments[0]}.svg")
        shown = figure(svg, self.parse_content_to_nodes(), ' class="diagram"')
        return [nodes.container("", described(svg)[1], *shown)]


class FigureOf(SphinxDirective):
    required_arguments = 2

    def run(self):
        page, number = self.arguments
        svg = read(self, f"series/images/sphx_glr_{page}_{int(number):03}.svg")
        words, text = described(svg)
        return [text, *figure(svg, [raw(escape(words))])]


class Play(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        self.assert_has_content()
        name = self.arguments[0]
        read(self, f"_static/play-{name}.js")
        return figure("", self.parse_content_to_nodes(), f' class="play" data-play="{name}"')


def add_scripts(app, pagename, templatename, context, doctree):
    if names := re.findall('data-play="(.*?)"', context.get("body", "")):
        app.add_css_file("play.css")
        for file in ("play", *(f"play-{name}" for name in names)):
            app.add_js_file(f"{file}.js")


def setup(app):
    app.add_directive("diagram", Diagram)
    app.add_directive("figure-of", FigureOf)
    app.add_directive("play", Play)
    app.connect("html-page-context", add_scripts)
    app.connect("env-get-outdated", lambda *_: ["index"])  # a page's figure may have changed

"""Figures that no code cell of the page has drawn.

    .. diagram:: ddp-step

       What to see.                      docs/diagrams/ddp-step.svg, and its caption

    .. figure-of:: 3_fault_tolerance 1   the first figure of a page, its words as the caption

    .. play:: ring

       The caption.                      a figure to play with

The first two put the SVG itself into the page, so that it has the colour of the text around it. Its
`aria-label` describes it to screen readers, and is the figure of the text build. The third is drawn
by docs/_static/play-ring.js. It hides the figure of the code cell above, which readers without
JavaScript see.
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


def described(svg):
    """What an SVG says to those who cannot see it, and the same as a node of the text build."""
    words = unescape(re.search('aria-label="(.*?)"', svg)[1])
    return words, raw(textwrap.fill(f"Figure: {words}", 70), "text")


class Diagram(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        file = Path(self.env.srcdir, "diagrams", f"{self.arguments[0]}.svg")
        if not file.is_file():
            raise self.error(f"docs/diagrams has no {file.name}")
        if not self.content:
            raise self.error(f"the diagram {file.stem} has no caption: write it below")
        svg = file.read_text(encoding="utf-8")
        shown = figure(svg, self.parse_content_to_nodes(), ' class="diagram"')
        return [nodes.container("", described(svg)[1], *shown)]


class FigureOf(SphinxDirective):
    required_arguments = 2

    def run(self):
        page, number = self.arguments
        file = Path(self.env.srcdir, f"series/images/sphx_glr_{page}_{int(number):03}.svg")
        if not file.is_file():
            raise self.error(f"{page} has no figure number {number}")
        svg = file.read_text(encoding="utf-8")
        words, text = described(svg)
        return [text, *figure(svg, [raw(escape(words))])]


class Play(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        name = self.arguments[0]
        if not Path(self.env.srcdir, f"_static/play-{name}.js").is_file():
            raise self.error(f"docs/_static has no play-{name}.js")
        if not self.content:
            raise self.error("a figure to play with needs a caption")
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

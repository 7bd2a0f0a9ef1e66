"""A figure to play with: keyboard, mouse or touch change it.

    .. play:: ring

       The caption.

docs/_static/play-ring.js draws it, from the data that this module puts into the page. It replaces
the figure of the code cell above, which readers without JavaScript see, and readers of the text
and of the notebook.
"""

import json
from dataclasses import asdict

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from docs.theory import step_time

from .run import recordings

CELL = nodes.raw | nodes.literal_block | nodes.comment  # of pictures.py, cells.py, sphinx-gallery


def overlap():
    return {"models": [asdict(model) for model in step_time.MODELS]}


def set_epoch():
    """The order of 32 samples in each of 8 epochs, as torch shuffled them."""
    output = recordings().find(("python docs/labs/shuffles.py",)).ran[0].output
    rows = [line.split() for line in output.splitlines()]
    return {"orders": [[*map(int, row[3:])] for row in rows if row[0] == "all"]}


FIGURES = {"ring": dict, "overlap": overlap, "set-epoch": set_epoch}


class play(nodes.General, nodes.Element):
    """The code cell that draws the fallback, then the caption."""


class Play(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        name = self.arguments[0]
        if name not in FIGURES:
            raise self.error(f"no figure is called {name}; there are: {', '.join(FIGURES)}")
        if not self.content:
            raise self.error("a figure to play with needs a caption")
        text, messages = self.parse_inline(" ".join(self.content))
        return [play("", nodes.paragraph("", "", *text), name=name), *messages]


def take_the_cell_above(app, doctree):
    """Move the figure and the code of the cell above into each node, to be replaced with it."""
    for node in list(doctree.findall(play)):
        around, place = node.parent, node.parent.index(node)
        start = place - 1
        while start >= 0 and around[start].astext() != "<figure>":
            start -= 1
        cell = around[max(start, 0) : place]
        if start < 0 or not all(isinstance(one, CELL) for one in cell):
            raise ValueError(f"{app.env.docname}: no cell above play:: {node['name']} has a figure")
        del around[start:place]
        node[:0] = cell


def add_files(app, pagename, templatename, context, doctree):
    names = [node["name"] for node in doctree.findall(play)] if doctree else []
    if names:
        app.add_css_file("play.css")
        for file in ("play", *(f"play-{name}" for name in names)):
            app.add_js_file(f"{file}.js")


def visit_html(self, node):
    *cell, caption = node.children
    name, out = node["name"], self.body
    data = json.dumps(FIGURES[name]())
    out.append(f'<figure class="play" data-play="{name}">')
    for child in cell:
        child.walkabout(self)
    out.append("<figcaption>")
    caption.walkabout(self)
    out.append(f'</figcaption><script type="application/json">{data}</script></figure>\n')
    raise nodes.SkipNode


def setup(app):
    nothing = (lambda *_: None,) * 2
    app.add_node(play, html=(visit_html, None), text=nothing)
    app.add_directive("play", Play)
    app.connect("doctree-read", take_the_cell_above, priority=600)  # cells.py folds the code first
    app.connect("html-page-context", add_files)

"""A diagram of docs/diagrams, and its caption.

    .. diagram:: ddp-step

       One or two sentences that say what to see.

It shows the `drawing` of docs/diagrams/ddp_step.py. The docstring of that file describes the
diagram, for screen readers and for the text build. The build warns (and with -W fails) about a
diagram that no page shows.
"""

import importlib
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools.series import own

logger = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parents[2]


def names():
    files = filter(own(ROOT), ROOT.glob("docs/diagrams/*.py"))
    return sorted(file.stem.replace("_", "-") for file in files)


class diagram(nodes.General, nodes.Element):
    """Its attributes `svg` and `alt`, and below them the caption."""


class Diagram(SphinxDirective):
    required_arguments = 1
    has_content = True

    def run(self):
        name = self.arguments[0]
        if name not in names():
            raise self.error(f"no diagram is called {name!r}; there are: {', '.join(names())}")
        if not self.content:
            raise self.error(f"the diagram {name} has no caption: write it below")
        self.env.diagrams.setdefault(self.env.docname, []).append(name)
        module = importlib.import_module(f"docs.diagrams.{name.replace('-', '_')}")
        alt = " ".join(module.__doc__.split())
        return [diagram("", *self.parse_content_to_nodes(), svg=module.drawing.svg(alt), alt=alt)]


def check_all_shown(app, env):
    shown = {name for found in env.diagrams.values() for name in found}
    for name in names():
        if name not in shown:
            logger.warning("no page shows the diagram %s", name)


def start(app):
    if not hasattr(app.env, "diagrams"):
        app.env.diagrams = {}


def purge(app, env, docname):
    env.diagrams.pop(docname, None)


def visit_html(self, node):
    self.body.append(f'<figure class="diagram">{node["svg"]}<figcaption>')


def depart_html(self, node):
    self.body.append("</figcaption></figure>\n")


def visit_text(self, node):
    self.new_state(0)
    self.add_text(f"Figure: {node['alt']}")
    self.end_state()


def depart_text(self, node):
    pass


def setup(app):
    app.add_node(diagram, html=(visit_html, depart_html), text=(visit_text, depart_text))
    app.add_directive("diagram", Diagram)
    app.connect("builder-inited", start)
    app.connect("env-purge-doc", purge)
    app.connect("env-check-consistency", check_all_shown)

"""Text that a reader may skip, such as internals: closed until clicked.

.. fold:: Why gloo aborts

   The text.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class fold(nodes.General, nodes.Element):
    """A summary, and below it the folded text."""


class summary(nodes.General, nodes.TextElement):
    pass


class Fold(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        self.assert_has_content()
        title, messages = self.parse_inline(self.arguments[0])
        folded = [summary("", "", *title), *self.parse_content_to_nodes()]
        return [fold("", *folded, classes=["fold"]), *messages]


def tag(name):
    def visit(self, node):
        self.body.append(self.starttag(node, name, ""))

    def depart(self, node):
        self.body.append(f"</{name}>\n")

    return visit, depart


def setup(app):
    paragraph = (lambda self, node: self.new_state(0)), (lambda self, node: self.end_state())
    nothing = (lambda self, node: None,) * 2
    app.add_node(fold, html=tag("details"), text=nothing)
    app.add_node(summary, html=tag("summary"), text=paragraph)
    app.add_directive("fold", Fold)

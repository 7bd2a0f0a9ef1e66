"""Text that a reader may skip, such as internals: closed until clicked.

    .. fold:: Why gloo aborts

       The text.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class fold(nodes.General, nodes.Element):
    """A title, and below it the folded text."""


class Fold(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        if not self.content:
            raise self.error("a fold needs a text")
        title, messages = self.parse_inline(self.arguments[0])
        return [fold("", nodes.inline("", "", *title), *self.parse_content_to_nodes()), *messages]


def visit_html(self, node):
    title = node.pop(0)
    self.body.append('<details class="fold"><summary>')
    title.walkabout(self)
    self.body.append("</summary>")


def depart_html(self, node):
    self.body.append("</details>\n")


def visit_text(self, node):
    title = node.pop(0)
    self.new_state(0)
    text = title.astext()
    self.add_text(text if text.endswith("?") else f"{text}:")
    self.end_state()


def depart_text(self, node):
    pass


def setup(app):
    app.add_node(fold, html=(visit_html, depart_html), text=(visit_text, depart_text))
    app.add_directive("fold", Fold)

"""The pages' code cells: fold those that only draw a figure; a cell that warns is an error."""

from docutils import nodes
from sphinx.util import logging

logger = logging.getLogger(__name__)
BEFORE = '<details class="picture-code"><summary>The code of this figure</summary>'


def check_and_fold(app, doctree):
    for block in list(doctree.findall(nodes.literal_block)):
        text = block.astext()
        if "sphx-glr-script-out" in block.get("classes", []) and "Warning" in text:
            logger.warning("a code cell warns: %s", text, location=block)
        if block.get("language") == "Python" and "lab.picture(" in text:
            block.parent.insert(block.parent.index(block), nodes.raw("", BEFORE, format="html"))
            block.parent.insert(
                block.parent.index(block) + 1, nodes.raw("", "</details>", format="html")
            )


def setup(app):
    app.connect("doctree-read", check_and_fold)

"""The code of a figure is folded, below the figure. A code cell that warns is an error."""

import itertools

from docutils import nodes
from sphinx.util import logging

from .pictures import END

logger = logging.getLogger(__name__)
BEFORE = '<details class="picture-code"><summary>The code of this figure</summary>'


def check_and_fold(app, doctree):
    for block in list(doctree.findall(nodes.literal_block)):
        text = block.astext()
        if "sphx-glr-script-out" in block.get("classes", []) and "Warning" in text:
            logger.warning("a code cell warns: %s", text, location=block)
        if is_code(block) and "lab.picture(" in text:
            fold_below_figure(block)


def is_code(node):
    return isinstance(node, nodes.literal_block) and node.get("language") == "Python"


def fold_below_figure(block):
    """Move the block behind the figure that follows it: see pictures.scrape.

    What is not measured yet has no figure; then the block goes.
    """
    cell, start = block.parent, block.parent.index(block)
    block["classes"].append("picture-code")
    later = itertools.takewhile(lambda at: not is_code(cell[at]), range(start + 1, len(cell)))
    ends = (at for at in later if cell[at].astext().endswith(END))
    if (figure := next(ends, None)) is None:
        cell.remove(block)
        return
    after = figure + 1
    before, end = (nodes.raw("", text, format="html") for text in (BEFORE, "</details>"))
    cell[start:after] = [*cell[start + 1 : after], before, block, end]


def setup(app):
    app.connect("doctree-read", check_and_fold)

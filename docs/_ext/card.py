"""Draw card.png, which social networks show beside a link: the promise, and a small edit.

They need its absolute address, so it is drawn only if html_baseurl is set.
"""

import textwrap

import matplotlib.pyplot as plt
from docutils import nodes

from tools.series import stages

from .lesson_diff import lessons


def draw(app, exception):
    if exception or app.builder.name != "html" or not app.config.html_baseurl:
        return
    promise = app.env.get_doctree("index").next_node(nodes.paragraph).astext()
    figure = plt.figure(figsize=(12, 6.3), facecolor="#10243e")
    figure.text(0.07, 0.8, app.config.project, color="white", fontsize=36, weight="bold")
    words = "\n".join(textwrap.wrap(" ".join(promise.split()), 56))
    figure.text(0.07, 0.7, words, color="#c8d6e8", fontsize=25, va="top", linespacing=1.5)
    edits = (edit for lesson in lessons() for edit in lesson.edits)
    smallest = min(edits, key=lambda edit: sum(line.counted for line in edit.lines))
    for line, row in enumerate(row for row in stages.after(smallest).rows if row.counted):
        color = "#ffa198" if row.sign == "-" else "#7ee2a0"
        text = f"{row.sign} {row.text.strip()}"
        figure.text(0.07, 0.2 - 0.08 * line, text, color=color, fontsize=25, family="monospace")
    figure.savefig(app.outdir / "card.png", dpi=100)
    plt.close(figure)


def setup(app):
    app.connect("build-finished", draw)

"""Matplotlib's figures as SVG in the page, in its colours, light or dark.

lab.picture draws text and axes in lab.INK, which becomes `currentColor` here. The figure's label
becomes its caption.
"""

import io
import re
from html import escape
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt

END = "</figcaption></figure>"
PHONE = 3.9  # inches: the width of the text on a phone, so that letters keep their size


def scrape(block, block_vars, gallery_conf):
    """Called by sphinx-gallery after each code block; returns the rST that shows its figures."""
    rst = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        alt = figure.get_label()
        path = Path(next(block_vars["image_path_iterator"])).with_suffix(".svg")
        wide = _svg(figure, path.stem, alt, "wide")
        figure.set_size_inches(PHONE, figure.get_figheight())  # its layout follows
        path.write_text(wide + _svg(figure, path.stem, alt, "narrow"), encoding="utf-8")
        rst.append(
            f"\n\n.. only:: not html\n\n   Figure: {alt}\n\n"
            f".. raw:: html\n\n   <figure>\n\n"
            f".. raw:: html\n   :file: images/{path.name}\n\n"
            f".. raw:: html\n\n   <figcaption>{escape(alt)}{END}\n\n"
        )
    plt.close("all")
    return "".join(rst)


def _svg(figure, stem, alt, kind):
    """The figure for wide or for narrow windows; figures.css shows one of the two."""
    import lab

    text, prefix = io.StringIO(), f"{stem}-{kind}"
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].replace(lab.INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--font-stack)", svg)
    width, height = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups()
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    style = f"max-width: {float(width) / 72 * 96:.0f}px; aspect-ratio: {width} / {height}"
    # The caption says it to screen readers; docs/_ext/figures.py reads the label.
    hidden = f'aria-hidden="true" aria-label="{escape(alt)}"'
    attributes = f'class="picture {kind}" {hidden} style="{style}"'
    return svg.replace("<svg", f"<svg {attributes}", 1)

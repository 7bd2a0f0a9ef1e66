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


def scrape(block, block_vars, gallery_conf):
    """Called by sphinx-gallery after each code block; returns the rST that shows its figures."""
    import lab

    rst = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        alt = figure.get_label()
        if not alt:
            raise ValueError("a picture without words: make it by lab.picture(alt)")
        path = Path(next(block_vars["image_path_iterator"])).with_suffix(".svg")
        text = io.StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem}):
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
        path.write_text(_inline(text.getvalue(), path.stem, alt, lab.INK), encoding="utf-8")
        rst.append(
            f"\n\n.. only:: not html\n\n   Figure: {alt}\n\n"
            f".. raw:: html\n\n   <figure>\n\n"
            f".. raw:: html\n   :file: images/{path.name}\n\n"
            f".. raw:: html\n\n   <figcaption>{escape(alt)}{END}\n\n"
        )
    plt.close("all")
    return "".join(rst)


def _inline(svg, prefix, alt, ink):
    svg = svg[svg.index("<svg") :].replace(ink, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{prefix}-", svg)
    svg = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--font-stack)", svg)
    width, height = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', svg).groups()
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    style = f"max-width: {float(width) / 72 * 96:.0f}px; aspect-ratio: {width} / {height}"
    return svg.replace(
        "<svg", f'<svg class="picture" role="img" aria-label="{escape(alt)}" style="{style}"', 1
    )

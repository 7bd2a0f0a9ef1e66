"""The lessons as a figure for the README: each script, what it adds, and how many lines change."""

from html import escape

from .model import Series

FILE = "docs/_static/chain.svg"
WIDTH, HEIGHT, GAP = 400, 50, 30  # of a box, and to the next one below it; narrow, as a phone is
STYLE = """\
text { font: 14px ui-sans-serif, system-ui, sans-serif; fill: #1f2328; }
.file { font: bold 14px ui-monospace, monospace; }
.added { fill: #116329; } .removed { fill: #9c1c12; }
rect { fill: #f3f5f7; stroke: #5d6672; } path { stroke: #5d6672; fill: none; }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f3f6; } .added { fill: #7ee2a0; } .removed { fill: #ffa198; }
  rect { fill: #1b1f24; stroke: #9aa4b0; } path { stroke: #9aa4b0; }
}"""


def svg(series: Series) -> str:
    """The chain of lessons, from the root downwards."""
    parts, y = [], 1
    for lesson in series.chain:
        if lesson.parent:
            added, removed = lesson.count()
            parts.append(f'<path d="M30 {y - GAP + 3}v{GAP - 6}m-5 -6l5 6l5 -6"/>')
            parts.append(text(46, y - 10, f"+{added}", "added"))
            parts.append(text(92, y - 10, f"−{removed}", "removed"))
        parts.append(f'<rect x="1" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8"/>')
        parts.append(text(14, y + 20, lesson.file, "file"))
        parts.append(text(14, y + 40, lesson.title))
        y += HEIGHT + GAP
    label = ", ".join(escape(lesson.file) for lesson in series.chain)
    size = f'width="{WIDTH + 2}" height="{y - GAP + 1}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH + 2} {y - GAP + 1}" '
        f'role="img" aria-label="{label}">\n<style>\n{STYLE}\n</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def text(x, y, words, kind=""):
    css = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{css}>{escape(words)}</text>'

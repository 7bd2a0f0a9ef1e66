"""What a diagram is made of: boxes, texts and arrows, as SVG for light and dark pages.

A drawing is as wide as the text on a phone, and its unit is a pixel there. Shapes have colours
that show on white and on black; texts and other lines have the colour of the text around them.
"""

from html import escape
from math import dist

from docs.lab import COLORS

WIDTH = 350
LINE = 15  # from one line of text to the next; the letters have 12: docs/_static/figures.css
HEAD = 7  # the length of an arrow's head
BLUE, ORANGE, GREEN, PURPLE = COLORS
INK = "currentColor"


class Drawing:
    def __init__(self, height):
        self.height = height
        self.parts = []

    def box(self, x, y, width, height, *lines, color=INK, dashed=False):
        """A box and the text in its middle. The first line is the name, in bold."""
        self._shape("rect", color, dashed, x=x, y=y, width=width, height=height, rx=5)
        middle, top = x + width / 2, y + height / 2 - (len(lines) - 1) * LINE / 2
        for number, line in enumerate(lines):
            self.text(middle, top + number * LINE, line, bold=number == 0)

    def frame(self, y, height, title):
        """A box of full width around others, with a title at its top."""
        self._shape("rect", INK, x=1, y=y, width=WIDTH - 2, height=height, rx=8, fill_opacity=0)
        self.text(12, y + 14, title, bold=True, anchor="start")

    def text(self, x, y, *lines, bold=False, anchor="middle"):
        """Lines of text; `y` is the middle of the first."""
        weight = ' class="name"' if bold else ""
        for number, line in enumerate(lines):
            place = f'x="{x}" y="{y + number * LINE}" text-anchor="{anchor}"'
            self.parts.append(f"<text {place}{weight}>{escape(line)}</text>")

    def arrow(self, x1, y1, x2, y2, color=INK, both=False, dashed=False):
        """An arrow from one point to another; with `both` it has a head at each end."""
        length = dist((x1, y1), (x2, y2))
        across, down = (x2 - x1) / length, (y2 - y1) / length
        self._head(x2, y2, across, down, color)
        if both:
            self._head(x1, y1, -across, -down, color)
            x1, y1 = x1 + HEAD * across, y1 + HEAD * down
        ends = {"x1": x1, "y1": y1, "x2": x2 - HEAD * across, "y2": y2 - HEAD * down}
        self._shape("line", color, dashed, **ends)

    def _head(self, x, y, across, down, color):
        back, side = (x - HEAD * across, y - HEAD * down), (HEAD / 2 * down, -HEAD / 2 * across)
        corners = [(x, y), *((back[0] + i * side[0], back[1] + i * side[1]) for i in (1, -1))]
        points = " ".join(f"{a:g},{b:g}" for a, b in corners)
        self._shape("polygon", color, points=points, fill_opacity=1)

    def _shape(self, name, color, dashed=False, **attributes):
        tint = 0.05 if color == INK else 0.15
        attributes = {"fill": color, "fill_opacity": tint, "stroke": color} | attributes
        if dashed:
            attributes["stroke_dasharray"] = "4 3"
        text = " ".join(f'{key.replace("_", "-")}="{value}"' for key, value in attributes.items())
        self.parts.append(f"<{name} {text}/>")

    def svg(self, alt):
        """The drawing as it is in a page. `alt` describes it to those who cannot see it."""
        head = f'<svg role="img" aria-label="{escape(alt)}" viewBox="0 0 {WIDTH} {self.height}">'
        return f"{head}{''.join(self.parts)}</svg>"

"""The diagrams on a phone: large enough to read, nothing cut off or crossed, enough contrast."""

import re
from itertools import combinations

import pytest

from tests.site import built, pages

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not pages(), reason="the site is not built: make docs"),
]
PIECES = """figure => [...figure.querySelectorAll("svg *")].map(piece => {
    const {left, top, right, bottom} = piece.getBoundingClientRect();
    const {fill, fillOpacity, stroke, fontSize} = getComputedStyle(piece);
    const size = parseFloat(fontSize) * piece.getScreenCTM().a;
    return {name: piece.tagName, text: piece.textContent, box: [left, top, right, bottom],
            fill, opacity: +fillOpacity, stroke, size};
})"""
SMALLEST = 10  # CSS pixels
OF_TEXT, OF_LINES = 4.5, 3  # contrast, by WCAG 2.2: 1.4.3 and 1.4.11


def inside(one, other):
    return all(one[i] >= other[i] - 0.5 and one[i + 2] <= other[i + 2] + 0.5 for i in (0, 1))


def apart(one, other):
    return any(one[i] >= other[i + 2] or other[i] >= one[i + 2] for i in (0, 1))


def rgb(color):
    return [float(number) for number in re.findall(r"[\d.]+", color)][:3]


def contrast(one, other):
    def luminance(color):
        parts = [part / 255 for part in color]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(weight * p for weight, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def behind(text, boxes, page):
    """The colour behind a text: the page's, below the tints of the boxes around the text."""
    color = page
    for box in boxes:
        if inside(text["box"], box["box"]):
            tints = zip(color, rgb(box["fill"]), strict=True)
            color = [a + (b - a) * box["opacity"] for a, b in tints]
    return color


def colors_are_apart(pieces, page):
    boxes = [piece for piece in pieces if piece["name"] == "rect"]
    for piece in pieces:
        if piece["name"] == "text":
            found = contrast(rgb(piece["fill"]), behind(piece, boxes, page))
            assert found >= OF_TEXT, f"{piece['text']}: contrast {found:.2f}"
        else:
            found = contrast(rgb(piece["stroke"]), page)
            assert found >= OF_LINES, f"{piece['name']} {piece['stroke']}: contrast {found:.2f}"


def is_legible(pieces, frame):
    for piece in pieces:
        assert inside(piece["box"], frame), f"outside its diagram: {piece}"
    for text in pieces:
        if text["name"] == "text":
            assert text["size"] >= SMALLEST, text
    for one, other in combinations(pieces, 2):
        if "text" in (one["name"], other["name"]):
            fine = apart(one["box"], other["box"])
            if one["name"] == "rect":  # drawn before the text in it
                fine |= inside(other["box"], one["box"])
            assert fine, f"a text is crossed: {one}, {other}"


@pytest.mark.parametrize("name", built(pages('<figure class="diagram">')))
def test_the_diagrams_of_a_page(window, name):
    page = window(name, width=390)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
        background = rgb(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        for figure in page.query_selector_all("figure.diagram"):
            pieces = figure.evaluate(PIECES)
            assert len(pieces) > 10 and figure.inner_text().strip()
            svg = figure.query_selector("svg").bounding_box()
            x, y, width, height = (svg[key] for key in ("x", "y", "width", "height"))
            is_legible(pieces, [x, y, x + width, y + height])
            colors_are_apart(pieces, background)

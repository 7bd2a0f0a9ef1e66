"""The directive `diagram`, in a small site that sphinx builds."""

import re
from xml.etree import ElementTree

import pytest

from tests.sites import CONF, Site, fails, warnings

for needed in ("sphinx", "matplotlib"):
    pytest.importorskip(needed, reason=f"no {needed}: make docs installs it")
pytest.importorskip("nbformat", reason="no nbformat: make docs installs it")

from tools.pages import notebook  # noqa: E402

MODULE = '''\
"""A box that says
"a < b & c"."""

from docs._ext.drawing import BLUE, Drawing

drawing = Drawing(60)
drawing.box(1, 1, 100, 40, "a < b & c", color=BLUE)
drawing.arrow(101, 21, 201, 21)
'''
CAPTION = "One box, and an *arrow*."
SHOWN = f"\n.. diagram:: one-box\n\n   {CAPTION}\n"


@pytest.fixture
def site(tmp_path):
    conf = CONF.replace('"docs._ext.run"', '"docs._ext.run", "docs._ext.diagram"')
    site = Site(tmp_path / "site", conf)
    site.write("docs/diagrams/one_box.py", MODULE)
    return site


def test_a_diagram_that_does_not_exist_or_that_no_page_shows(site):
    site.add(site.page, "\n.. diagram:: one-bocks\n\n   A caption.\n\n.. diagram:: one-box\n")
    messages = [
        "no diagram is called 'one-bocks'; there are: one-box",
        "the diagram one-box has no caption: write it below",
        "no page shows the diagram one-box",
    ]
    assert len(warnings(fails(site, *messages))) == len(messages)


def test_a_diagram_for_eyes_for_screen_readers_and_as_text(site):
    site.add(site.page, SHOWN)
    status, output = site.build("html")
    assert status == 0, output
    page = site.built(f"html/pages/{site.lesson.page}.html")
    figure = re.search(r'(?s)<figure class="diagram">(<svg.*?</svg>)(.*?)</figure>', page)
    svg = ElementTree.fromstring(figure[1])  # so what it says is escaped
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"] == 'A box that says "a < b & c".'
    assert [text.text for text in svg.iter("text")] == ["a < b & c"]
    assert "<em>arrow</em>" in figure[2] and "<figcaption>" in figure[2]

    assert site.build("text")[0] == 0
    text = site.built(f"text/pages/{site.lesson.page}.txt")
    assert f'Figure: A box that says "a < b & c".\n\n{CAPTION}\n' in text


def test_a_diagram_in_a_notebook_is_its_caption():
    made = notebook.make([("text", "Title\n====="), ("text", f"Look:\n{SHOWN}")])
    assert CAPTION in made.cells[-1].source and "::" not in made.cells[-1].source

"""The built pages: their links, the chapters of the series, their neighbours and notebooks."""

import re

import pytest

from tests.processes import ROOT
from tests.site import SITE

INDEX = (ROOT / "docs" / "index.rst").read_text(encoding="utf-8")
SERIES = re.findall(r"(?m)^   series/(\w+)$", INDEX.partition(".. beyond-toctree::")[0])


def text_of(name):
    return (SITE / f"series/{name}.html").read_text(encoding="utf-8")


def test_the_pages_of_the_series_lead_to_each_other_and_to_their_notebooks():
    front = (SITE / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r'href="series/(\w+)\.html">[^<]*</a>, (\d+) minutes', front)
    assert [name for name, _ in listed] == SERIES
    for place, (name, minutes) in enumerate(listed):
        text = text_of(name)
        assert f"About {minutes} minutes" in text
        strip = re.search(r'(?s)<nav class="strip".*?</nav>', text)[0]
        link = r'<(?:a href="(\w+).html" title=".+?">|strong aria-\w+="page">)(\d+)'
        links = re.findall(link, strip)
        assert links == chapters(name)
        for way, other in (("prev", place - 1), ("next", place + 1)):
            if 0 <= other < len(SERIES):
                assert re.search(rf'<link rel="{way}" [^>]*href="{SERIES[other]}.html"', text)
        assert re.search(rf'href="\.\./_downloads/\w+/{name}\.ipynb"', text)


def chapters(here):
    return [("" if name == here else name, str(n)) for n, name in enumerate(SERIES, 1)]


@pytest.mark.parametrize("name", ["5b_robust", "beyond_zero", "symptoms"])
def test_every_page_has_all_chapters_beside_it_and_opens_its_own_group(name):
    side = re.search(r'(?s)<div class="sidebar-tree">.*?<article', text_of(name))[0]
    order = re.findall(r'href="(\w+\.html|#)"[^>]*>(\d+)\. ', side)
    assert [("" if link == "#" else link.removesuffix(".html"), n) for link, n in order] == (
        chapters(name)
    )
    captions = re.findall(r'<p class="caption"><span class="caption-text">(.*?)</span>', side)
    assert captions == re.findall(r"(?m)^   :caption: (Part .*)$", INDEX)
    groups = re.findall(r"(?s)<details( open)?>(.*?)</details>", side)
    assert len(groups) == 3
    for is_open, group in groups:
        assert bool(is_open) == ('aria-current="page"' in group)
    assert side.count('class="reference internal"') < 15  # sections, but no entries

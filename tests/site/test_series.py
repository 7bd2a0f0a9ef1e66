"""The built pages: their links, the strip of the series, their neighbours and notebooks."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.site import SITE, built, pages

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not pages(), reason="the site is not built: make docs"),
]
PAGES = [name for name in pages() if re.fullmatch(r"series/(?!index\.).*\.html", name)]
PARTS = {
    "1_theory.html": ["1a_speed.html"],
    "2_multigpu.html": ["batch_and_learning_rate.html"],
    "4_multinode.html": ["where_the_time_goes.html", "between_nodes.html"],
    "5_minGPT.html": ["5a_exact.html", "5b_robust.html", "5c_fast.html"],
}
FIRST = [name for one in PAGES if re.match(r"\d_", name := one.partition("/")[2])]
SERIES = [name for first in FIRST for name in (first, *PARTS.get(first, []))]


def text_of(name):
    return (SITE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", built(PAGES))
def test_the_strip_lists_the_series(name):
    strip = re.search(r'(?s)<nav class="strip".*?</nav>', text_of(name))[0]
    here = name.partition("/")[2]
    order = [url or here for url in re.findall(r'<(?:a href="(.*?)"|strong aria-current)', strip)]
    parts = next((names for first, names in PARTS.items() if here in (first, *names)), [])
    assert order == FIRST + parts


@pytest.mark.parametrize("here", built(SERIES))
def test_a_page_of_the_series(here):
    """It links to its neighbours and to a notebook."""
    text, place = text_of(f"series/{here}"), SERIES.index(here)
    for way, step in (("prev", -1), ("next", 1)):
        if 0 <= place + step < len(SERIES):
            assert re.search(rf'<link rel="{way}" [^>]*href="{SERIES[place + step]}"', text)
    notebook = here.replace(".html", ".ipynb")
    assert re.search(rf'href="\.\./_downloads/\w+/{notebook}"', text)


@pytest.mark.parametrize(
    "right, wrong, said",
    [
        ("", "", "0 Errors"),
        ('href="glossary.html#term-rank"', 'href="glossary.html#rank"', "Cannot find fragment"),
        ('href="1_theory.html"', 'href="theory.html"', "File not found"),
        ("_static/styles/furo.css", "_static/styles/fury.css", "File not found"),
        ('href="1_theory.html"', 'href="/series/1_theory.html"', "root-relative"),
        ('href="1_theory.html"', 'href="../_static/"', "index file"),
    ],
)
def test_every_link_leads_somewhere(right, wrong, said, tmp_path):
    lychee = Path(sys.executable).with_name("lychee")
    if not lychee.exists():
        pytest.skip("no lychee: python tools/bootstrap.py dev")
    site = shutil.copytree(SITE, tmp_path / "site")
    page = site / "series" / "2_multigpu.html"
    assert right in page.read_text()
    page.write_text(page.read_text().replace(right, wrong, 1))
    ran = subprocess.run([lychee, site], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == (2 if right else 0) and said in ran.stdout, ran.stdout + ran.stderr

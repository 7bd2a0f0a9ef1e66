"""The built pages: their links, the strip of the series, their neighbours and notebooks."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.site import SITE

SERIES = [
    "0_intro", "1_theory", "1a_speed", "2_multigpu", "batch_and_learning_rate",
    "3_fault_tolerance", "4_multinode", "where_the_time_goes", "between_nodes",
    "5_minGPT", "5a_exact", "5b_robust", "5c_fast", "5d_gpus",
]  # fmt: skip
FIRST = [name for name in SERIES if re.match(r"\d_", name)]


def text_of(name):
    return (SITE / f"series/{name}.html").read_text(encoding="utf-8")


def test_the_pages_of_the_series_lead_to_each_other_and_to_their_notebooks():
    front = (SITE / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r'href="series/(\w+)\.html">[^<]*</a>, (\d+) minutes', front)
    assert [name for name, _ in listed] == SERIES
    for place, (name, minutes) in enumerate(listed):
        text = text_of(name)
        assert f"Page {place + 1} of {len(SERIES)}, about {minutes} minutes" in text
        for way, other in (("prev", place - 1), ("next", place + 1)):
            if 0 <= other < len(SERIES):
                assert re.search(rf'<link rel="{way}" [^>]*href="{SERIES[other]}.html"', text)
        assert re.search(rf'href="\.\./_downloads/\w+/{name}\.ipynb"', text)


@pytest.mark.parametrize(("name", "parts"), [
    ("2_multigpu", ["batch_and_learning_rate"]),
    ("5b_robust", ["5a_exact", "5b_robust", "5c_fast", "5d_gpus"]),
    ("beyond_zero", []), ("glossary", []),
])  # fmt: skip
def test_the_strip_lists_the_series_and_the_parts_of_a_page(name, parts):
    strip = re.search(r'(?s)<nav class="strip".*?</nav>', text_of(name))[0]
    order = re.findall(r'<(?:a href="(\w+|#).*?"|strong aria-current)', strip)
    assert [one if one.strip("#") else name for one in order] == FIRST + parts


def test_lychee_finds_links_that_lead_nowhere(tmp_path):
    """.ci/run asks it about all pages; here, about one."""
    lychee = Path(sys.executable).with_name("lychee")
    if not lychee.exists():
        pytest.skip("no lychee: python tools/bootstrap.py dev")
    site = shutil.copytree(SITE, tmp_path / "site", copy_function=os.symlink)
    page, text = site / "series" / "2_multigpu.html", text_of("2_multigpu")
    for right, wrong in (("glossary.html#term-rank", "glossary.html#rank"),
                         ("1_theory.html", "theory.html")):  # fmt: skip
        assert f'href="{right}"' in text
        text = text.replace(f'href="{right}"', f'href="{wrong}"', 1)
    page.unlink()
    page.write_text(text)
    ran = subprocess.run([lychee, page], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 2 and "2 Errors" in ran.stdout, ran.stdout + ran.stderr
    assert "Cannot find fragment" in ran.stdout and "File not found" in ran.stdout

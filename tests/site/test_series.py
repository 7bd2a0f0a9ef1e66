"""The built pages: their links, the chapters of the series, their neighbours and notebooks."""

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
    "parallel_memory",
    "parallel_zero",
    "parallel_fsdp",
    "parallel_hsdp",
    "parallel_dcp",
    "parallel_tensor",
    "parallel_two",
    "parallel_pipeline",
    "parallel_context",
    "parallel_experts",
    "parallel_without_restart",
    "parallel_scale",
]  # fmt: skip


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
    groups = re.findall(r"(?s)<details( open)?>(.*?)</details>", side)
    assert len(groups) == 3
    for is_open, group in groups:
        assert bool(is_open) == ('aria-current="page"' in group)
    assert side.count('class="reference internal"') < 15  # sections, but no entries


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

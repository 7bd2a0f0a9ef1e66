"""How pages end, and their links to PyTorch's documentation."""

import pkgutil
import re

import pytest
import torch

from tests.processes import ROOT
from tests.sites import CONF, Site, end_of, fails, warnings
from tools import series
from tools.pages import directives, ends, notebook, torch_docs

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")

DOCS = f"https://docs.pytorch.org/docs/{'.'.join(torch.__version__.split('.')[:2])}/"
ALL = '"docs._ext.fold", "docs._ext.torch_role", "docs._ext.page_end"]'
# Each is made in its own page, all in one build.
WRONG = {
    "asks 2 questions, each in a fold": (
        "".join(f"   .. fold:: Why {n}?\n\n      Because.\n\n" for n in range(2)),
        "",
    ),
    "write page-end:: wrong1": ("page-end:: wrong1", "page-end:: other"),
    "with the option :next:": ("   :next: :doc:`/index`\n", ""),
    "unknown document: '/indexes'": (":doc:`/index`", ":doc:`/indexes`"),
    "'dist.barrier' is no name of torch": ("now stop", "use :torch:`dist.barrier`"),
}


def test_every_mistake_about_an_end_is_reported_and_a_right_one_is_linked(tmp_path):
    site = Site(tmp_path / "site", CONF.replace('"docs._ext.run"]', f'"docs._ext.run", {ALL}'))
    site.write("docs/pages/workshop.rst", "Workshop\n========\n\nHere.\n")
    pages = {site.lesson.page: end_of(site.lesson.page, also="torchrun <torch.distributed.run>")}
    for number, (old, new) in enumerate(WRONG.values()):
        pages[f"wrong{number}"] = end_of(f"wrong{number}").replace(old, new)
    for name, end in {**pages, "none": ""}.items():  # each is a page of the series
        titled = "" if name == site.lesson.page else f"A page\n{'=' * 20}\n\nText.\n"
        site.write(f"docs/pages/{name}.py", "")
        site.write(f"docs/pages/{name}.rst", (titled or site.read(site.page)) + end)
    assert site.record()[0] == 0
    output = fails(site, *WRONG)
    assert re.search(r"pages/none.rst:\d: WARNING: this page must end with a page-end", output)
    reported = {re.search(r"pages/(\w+)\.rst", line)[1] for line in warnings(output)}
    assert reported == {"none", "workshop", *pages}
    (order,) = [line for line in warnings(output) if f"pages/{site.lesson.page}.rst" in line]
    assert "its :next: must begin with :doc:`" in order

    site.python("-m", "sphinx", "-b", "html", "docs", "docs/_build/html")
    html = site.built(f"html/pages/{site.lesson.page}.html").rpartition('class="page-end')[2]
    assert "python -m workshop start multigpu you make the 7 edits" in words(html)
    linked = re.findall(r'href="(https:[^"]+)" title="([^"]+)"', html)
    for name in ("torch.distributed.all_reduce", "torch.distributed.run"):  # derived, and typed
        assert (DOCS + ADDRESSES[name], name) in linked
    assert html.count('<details class="fold">') == 3


def words(html):
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


# Names ------------------------------------------------------------------------------------------


def test_the_names_in_added_lines():
    text = "import torch\nimport torch.distributed as dist\nfrom torch.nn import Linear as L\n"
    text += "x = torch.optim.SGD(L(1, 2).parameters())\ndist.barrier()\ntorch._dynamo.reset()\n"
    used = ["torch.optim.SGD", "torch.nn.Linear", "torch.distributed.barrier"]
    assert list(ends.names(text)) == used
    assert list(ends.names(text, {5})) == ["torch.distributed.barrier"]


ADDRESSES = {
    "torch.load": "generated/torch.load.html",
    "torch.nn.Module.compile": "generated/torch.nn.Module.html#torch.nn.Module.compile",
    "torch.Tensor.view": "generated/torch.Tensor.view.html",
    "torch.distributed.all_reduce": "distributed.html#torch.distributed.all_reduce",
    "torch.distributed.run": "elastic/run.html",
    "torch.distributed.tensor.DTensor": "distributed.tensor.html",
    "torch.autograd.Function": "autograd.html#torch.autograd.Function",
    "torch.profiler.schedule": "profiler.html#torch.profiler.profiler.schedule",
    "torch.utils.data.DataLoader": "data.html#torch.utils.data.DataLoader",
    "torch.utils.checkpoint": "checkpoint.html",
    "torch.utils.checkpoint.checkpoint": "checkpoint.html#torch.utils.checkpoint.checkpoint",
}


def test_the_page_of_a_name():
    assert {name: torch_docs.address(name) for name in ADDRESSES} == {
        name: DOCS + page for name, page in ADDRESSES.items()
    }


def test_torch_has_every_name_that_a_page_links_to():
    lessons, linked = series.load_all(), set()
    for page in ROOT.glob("docs/pages/*.[pr]*"):
        text = page.read_text(encoding="utf-8")
        text = directives.prose(text) if page.suffix == ".py" else text
        for end in (one for one in directives.find(text) if one.name == "page-end"):
            also = end.options.get("also", "")
            text += "\n".join(ends.lines(lessons, page.stem, "", also))
        linked |= {torch_docs.split(link)[1] for link in re.findall(r":torch:`([^`]+)`", text)}
    assert len(linked) > 50
    for name in linked:
        pkgutil.resolve_name(name)  # raises an error if torch lacks it


def test_an_end_in_a_notebook():
    text = end_of("4_multinode", also="torch.load").replace("Why 0?", "Why ``x``?")
    *_, cell = notebook.make([("text", "Title\n====="), ("text", text)]).cells
    assert cell.source.startswith("## What you can do now\n\n")
    assert "\nYou can now stop.\n" in cell.source and "page-end" not in cell.source
    folded = "<details><summary>Why <code>x</code>?</summary>\n\nBecause.\n\n</details>"
    assert folded in cell.source
    assert f"[`load`]({DOCS}generated/torch.load.html)." in cell.source
    assert "`python -m workshop start multinode`" in cell.source and ":torch:" not in cell.source

"""How pages end, and their links to PyTorch's documentation."""

import re

import pytest
import torch

from tests.processes import ROOT
from tests.sites import CONF, Site, end_of, fails, warnings
from tools.errors import UserError
from tools.pages import directives, ends, notebook, torch_docs
from tools.pages.lessons import load

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")

PAGES = {path.stem: path for path in sorted((ROOT / "docs" / "pages").glob("*.py"))}
DOCS = f"https://docs.pytorch.org/docs/{'.'.join(torch.__version__.split('.')[:2])}/"
ALL = '"docs._ext.fold", "docs._ext.torch_role", "docs._ext.page_end"]'


@pytest.fixture
def site(tmp_path):
    """A page of the series that ends as it should."""
    site = Site(tmp_path / "site", CONF.replace('"docs._ext.run"]', f'"docs._ext.run", {ALL}'))
    site.write(f"docs/pages/{site.lesson.page}.py", "")
    site.write("docs/pages/workshop.rst", "Workshop\n========\n\nHere.\n")
    site.add(site.page, end_of(site.lesson.page, also="torchrun <torch.distributed.run>"))
    return site


def test_the_end_of_a_page_lists_exercises_and_apis(site):
    status, output = site.build("html")
    assert status == 0, output
    html = site.built(f"html/pages/{site.lesson.page}.html")
    text = re.sub(r"<[^>]+>", "", html.rpartition('class="page-end')[2])
    assert "python -m workshop start multigpu you make the 7 edits" in " ".join(text.split())
    linked = re.findall(r'href="(https:[^"]+)" title="([^"]+)"', html)
    for name in ("torch.distributed.all_reduce", "torch.distributed.run"):  # derived, and typed
        assert (DOCS + ADDRESSES[name], name) in linked
    assert html.count('<details class="fold">') == 3


# Each is made in its own page, all in one build.
WRONG = {
    "two questions": (
        "   .. fold:: Why 2?\n\n      Because.\n", "", "asks 3 questions, each in a fold"
    ),
    "another title": (
        "What you can do now", "The end", "must end with a section 'What you can do now'"
    ),
    "another page": ("page-end:: wrong", "page-end:: right", "write page-end:: wrong"),
    "no next page": ("   :next: :doc:`/index`\n", "", "with the option :next:"),
    "no such page": (":doc:`/index`", ":doc:`/indexes`", "unknown document: '/indexes'"),
    "no such name": ("now stop", "use :torch:`torch.nn.Lineal`", "torch has no torch.nn.Lineal"),
    "a short name": ("now stop", "use :torch:`dist.barrier`", "'dist.barrier' is no name of torch"),
    "no text": ("   You can now stop.\n", "", "begins with what the reader can do now"),
}  # fmt: skip


def test_every_mistake_about_an_end_is_reported(site):
    titled = f"A page\n{'=' * 20}\n\nText.\n"
    for number, (old, new, _) in enumerate(WRONG.values()):
        end = end_of(f"wrong{number}")
        new = new.replace("right", "other")
        old = old.replace("wrong", f"wrong{number}")
        assert end.count(old) == 1
        site.write(f"docs/pages/wrong{number}.rst", titled + end.replace(old, new))
        site.write(f"docs/pages/wrong{number}.py", "")
    site.write("docs/pages/none.rst", titled)  # a page of the series without an end
    site.write("docs/pages/none.py", "")
    site.write("docs/pages/other.rst", titled)  # no page of the series: it needs none
    output = fails(site, *(message for *_, message in WRONG.values()))
    assert "pages/none.rst: WARNING: this page must end with a section" in output
    reported = {re.search(r"pages/(\w+)\.rst", line)[1] for line in warnings(output)}
    assert reported == {"none", *(f"wrong{number}" for number in range(len(WRONG)))}


# Names ------------------------------------------------------------------------------------------


def test_the_names_in_added_lines():
    text = "import torch\nimport torch.distributed as dist\nfrom torch.nn import Linear as L\n"
    text += "x = torch.optim.SGD(L(1, 2).parameters())\ndist.barrier()\ntorch._dynamo.reset()\n"
    used = ["torch.optim.SGD", "torch.nn.Linear", "torch.distributed.barrier"]
    assert list(ends.names(text)) == used
    assert list(ends.names(text, {5})) == ["torch.distributed.barrier"]
    of_page = ends.apis(load(), "4_multinode")
    assert [name.rpartition(".")[2] for name in of_page] == [
        "get_node_local_rank", "get_world_size", "all_gather_object", "broadcast_object_list",
    ]  # fmt: skip


ADDRESSES = {
    "torch.load": "generated/torch.load.html",
    "torch.nn.parallel.DistributedDataParallel": (
        "generated/torch.nn.parallel.DistributedDataParallel.html"
    ),
    "torch.nn.Module.compile": "generated/torch.nn.Module.html#torch.nn.Module.compile",
    "torch.Tensor.view": "generated/torch.Tensor.view.html",
    "torch.nn.functional.mse_loss": "generated/torch.nn.functional.mse_loss.html",
    "torch.distributed.all_reduce": "distributed.html#torch.distributed.all_reduce",
    "torch.distributed.run": "elastic/run.html",
    "torch.distributed.elastic.multiprocessing.errors.record": (
        "elastic/errors.html#torch.distributed.elastic.multiprocessing.errors.record"
    ),
    "torch.utils.data.DistributedSampler": (
        "data.html#torch.utils.data.distributed.DistributedSampler"
    ),
    "torch.utils.data.DataLoader": "data.html#torch.utils.data.DataLoader",
    "torch.multiprocessing.spawn": "multiprocessing.html#torch.multiprocessing.spawn.spawn",
    "torch.autocast": "amp.html#torch.autocast",
    "torch.utils.checkpoint": "checkpoint.html",
    "torch.utils.checkpoint.checkpoint": "checkpoint.html#torch.utils.checkpoint.checkpoint",
}


def test_the_page_of_a_name():
    assert {name: torch_docs.address(name) for name in ADDRESSES} == {
        name: DOCS + page for name, page in ADDRESSES.items()
    }
    for wrong in ("torch.nn.Lineal", "nn.Linear", "torch.distributed.nope.all_reduce", "torch nn"):
        with pytest.raises(UserError):
            torch_docs.address(wrong)


FORM = re.compile(
    r"generated/(torch\.[\w.]+)\.html(#\1\.\w+)?|(elastic/)?[a-z_.]+\.html(#(torch\.[\w.]+|[a-z-]+))?"
)


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page(page):
    text = directives.prose(PAGES[page].read_text(encoding="utf-8"))
    end = next(found for found in directives.find(text) if found.name == "page-end")
    text += "\n".join(ends.lines(load(), page, "", end.options.get("also", "")))
    for link in re.findall(r":torch:`([^`]+)`", text):
        address = torch_docs.address(torch_docs.split(link)[1])
        assert address.startswith(DOCS) and FORM.fullmatch(address.removeprefix(DOCS))


def test_an_end_in_a_notebook():
    text = end_of("4_multinode", also="torch.load").replace("Why 0?", "Why ``x``?")
    *_, cell = notebook.make([("text", "Title\n====="), ("text", text)]).cells
    assert cell.source.startswith("## What you can do now\n\n")
    assert "\nYou can now stop.\n" in cell.source and "page-end" not in cell.source
    folded = "<details><summary>Why <code>x</code>?</summary>\n\nBecause.\n\n</details>"
    assert folded in cell.source
    assert f"[`load`]({DOCS}generated/torch.load.html)." in cell.source
    assert f"[`all_gather_object`]({DOCS}distributed.html#" in cell.source
    assert "`python -m workshop start multinode`" in cell.source and ":torch:" not in cell.source

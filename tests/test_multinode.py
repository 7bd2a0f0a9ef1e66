"""Two nodes that share no disk: any may hold the newest checkpoint, any may lose its own."""

import re
import shutil

import pytest
import torch

from tests import nodes
from tests.faults import same
from tests.lessons import train
from tests.processes import epochs, losses

NAME = "multinode.pt"


@pytest.mark.quick
@pytest.mark.parametrize("newest_on", [0, 2], ids=["rank 0's node", "the other node"])
@pytest.mark.parametrize("elsewhere", [1, None], ids=["an older one", "a new disk"])
def test_all_resume_from_the_newest(newest_on, elsewhere, trained, tmp_path, capsys):
    saves = [torch.load(file) for file in trained("multinode").saves[:3]]  # after 10, 20, 30
    held = {newest_on: saves[1]} | ({2 - newest_on: saves[0]} if elsewhere else {})
    # The global batch is that of the documented run, whose two ranks add in another order.
    ended = train("multinode", tmp_path, 30, 10, size=4, nodes=2, start=held)
    assert epochs(capsys.readouterr().out.splitlines()) == [*range(21, 31)]
    assert [one and one["epochs_run"] for one in ended] == [30, None, 30, None]
    assert same(ended[0], ended[2])
    for name, weight in saves[2]["model"].items():
        assert torch.allclose(weight, ended[0]["model"][name], rtol=0, atol=1e-6)


def test_nodes_may_share_a_folder_and_the_first_lines_are_about_both(tmp_path):
    """One node's number of processes would look like the job's, so no line has it."""
    shared = tmp_path / "shared"
    found = nodes.start([shared, shared], 5, 1, nproc=2)
    assert nodes.finish(found) == [0, 0]
    assert sorted(path.name for path in shared.iterdir()) == [".tmp", NAME]
    assert torch.load(shared / NAME)["epochs_run"] == 5
    assert not any("has replaced" in node.err for node in found)
    first, other = sorted((node.lines for node in found), key=losses, reverse=True)
    said = [line for line in first + other if not line.startswith("Epoch")]
    assert len(said) <= 1 and all(line.endswith(": training on the CPU") for line in said)
    assert not any(re.search(r"\bprocess|\brank", line) for line in first + other)
    assert [count for _, count in losses(first)] == [2048] * 5 and losses(other) == []


def test_unreadable_file_is_an_error_though_the_other_node_has_a_good_one(trained, tmp_path):
    folders = [tmp_path / "rank0", tmp_path / "rank1"]
    for folder in folders:
        folder.mkdir()
    shutil.copy(trained("multinode").saves[0], folders[0] / NAME)
    damaged = folders[1] / NAME
    damaged.write_bytes((folders[0] / NAME).read_bytes()[:1000])
    found = nodes.start(folders, 20, 10, ranks=(0, 1), restarts=0)
    assert 0 not in nodes.finish(found)
    said = [line for node in found for line in node.err.splitlines() if "multinode.py: " in line]
    assert len([line for line in said if f"multinode.py: {NAME} is damaged" in line]) == 1
    assert f"UserError: {NAME} is damaged" in found[1].err.partition("Root Cause")[2]  # by @record
    assert not any("[rank" in line for node in found for line in node.err.splitlines())
    assert damaged.stat().st_size == 1000
    assert torch.load(folders[0] / NAME)["epochs_run"] == 10

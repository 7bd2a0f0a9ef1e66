"""Two groups, each with its own torchrun: one is lost, and the other goes on."""

import re
import subprocess
import sys

import pytest
import torch

from tests.lessons import distance
from tests.processes import ROOT, run
from tools.processes import environment

pytest.importorskip("torchft", reason="no torchft: python3 tools/bootstrap.py groups installs it")
LAB = ROOT / "docs" / "labs" / "groups.py"


def play(folder, *args, limit=240):
    """The output of docs/labs/groups.py, and the last checkpoint of each group."""
    path = f"{sys.prefix}/bin:{environment()['PATH']}"
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT}/tools/quick", PATH=path)
    words = [sys.executable, str(LAB), *map(str, args)]
    ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=limit)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, [torch.load(folder / f"group{n}/without_restart.pt") for n in (0, 1)]


def test_two_groups_train_as_one_and_resume_from_the_newest_checkpoint(tmp_path):
    """Groups of two average in another order than four processes do: not the same bits."""
    whole = run("multinode", 4, 4, "--checkpoint_path", "m.pt", nproc=4, cwd=tmp_path)
    assert whole.status == 0
    play(tmp_path, "--nproc_per_node=2", "parallel.without_restart", 2, 2)
    (tmp_path / "group0/without_restart.pt").unlink()
    output, groups = play(tmp_path, "--nproc_per_node=2", "parallel.without_restart", 4, 4)
    assert output.count("Resuming after epoch 2") == 2
    undisturbed = torch.load(tmp_path / "m.pt")
    for group in groups:
        assert group["epochs_run"] == 4
        assert distance(group, undisturbed) <= 1e-6
        assert distance(group["optimizer"], undisturbed["optimizer"]) <= 1e-5


def test_a_lost_group_stops_nobody_and_its_successor_takes_the_state(tmp_path):
    args = (30, 30, "--batch_size", 4)  # so slow that the newcomer finds the others at work
    output, (stayed, came) = play(tmp_path, "parallel.without_restart", "--lose", 3, *args)
    _, lost, after = output.partition("--- lost")
    assert lost and "group 0 | Resuming" not in after  # before, either may come late and resume
    epochs = [int(n) for n in re.findall(r"group 0 . Epoch +(\d+) . loss", output)]
    assert epochs == list(range(epochs[0], 31))
    resumed = int(re.search(r"group 1 . Resuming after epoch (\d+)", after)[1])
    assert 3 <= resumed < 30
    assert distance(stayed, came) == 0 == distance(stayed["optimizer"], came["optimizer"])

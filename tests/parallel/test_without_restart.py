"""Two groups, each with its own torchrun, train as one. The page shows what a lost group costs."""

import subprocess
import sys

import pytest
import torch

from tests.lessons import distance
from tests.processes import ROOT, run
from tools.processes import environment

pytest.importorskip("torchft", reason="no torchft: python3 tools/bootstrap.py groups installs it")


def play(folder, *args):
    """The output of two groups that docs/labs/groups.py starts, and their last checkpoints."""
    path = f"{sys.prefix}/bin:{environment()['PATH']}"
    env = environment(PYTHONPATH=f"{ROOT}:{ROOT}/tools/quick", PATH=path)
    words = [sys.executable, f"{ROOT}/docs/labs/groups.py", "--nproc_per_node=2"]
    words += ["parallel.without_restart", *map(str, args)]
    ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout, [torch.load(folder / f"group{n}/without_restart.pt") for n in (0, 1)]


def test_two_groups_train_as_one_and_resume_from_the_newest_checkpoint(tmp_path):
    """Groups of two average in another order than four processes do: not the same bits."""
    whole = run("multinode", 4, 4, "--checkpoint_path", "m.pt", nproc=4, cwd=tmp_path)
    assert whole.status == 0
    play(tmp_path, 2, 2)
    (tmp_path / "group0/without_restart.pt").unlink()
    output, groups = play(tmp_path, 4, 4)
    assert output.count("Resuming after epoch 2") == 2
    undisturbed = torch.load(tmp_path / "m.pt")
    for group in groups:
        assert group["epochs_run"] == 4
        assert distance(group, undisturbed) <= 1e-6
        assert distance(group["optimizer"], undisturbed["optimizer"]) <= 1e-5

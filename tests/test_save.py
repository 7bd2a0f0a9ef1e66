"""A save is whole or has not happened, and is on the disk when it says so."""

import os
import signal

import pytest
import torch

import utils
from tests.mistakes import python
from tests.processes import ROOT

pytestmark = pytest.mark.quick

OLD, NEW = ({"model": {"w": torch.full((50,), n)}, "epochs_run": int(n)} for n in (1.0, 2.0))


def test_order_of_writing(tmp_path, monkeypatch):
    path, calls = tmp_path / "model.pt", []
    fsync, replace = os.fsync, os.replace

    def fsynced(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append("folder" if name == str(tmp_path) else "file")
        # What is not in the file by now, the disk will not hold when the name changes.
        assert name == str(tmp_path) or torch.load(name)["epochs_run"] == 2
        fsync(descriptor)

    def replaced(source, target):
        calls.append("rename")
        assert os.path.dirname(source) == str(tmp_path) and str(target) == str(path)
        replace(source, target)

    utils.save_checkpoint(OLD, path)
    monkeypatch.setattr(os, "fsync", fsynced)
    monkeypatch.setattr(os, "replace", replaced)
    utils.save_checkpoint(NEW, path)
    assert calls == ["file", "rename", "folder"]
    assert torch.load(path)["epochs_run"] == 2
    assert os.listdir(tmp_path) == ["model.pt"]


KILLED = f"""
import os, signal, sys, torch
sys.path.insert(0, {str(ROOT)!r})
import utils
def kill(*args):
    if sys.argv[1] == "torch.save":
        args[1].write(b"half")
        args[1].flush()
    os.kill(os.getpid(), signal.SIGKILL)
module, name = sys.argv[1].split(".")
setattr(sys.modules[module], name, kill)
utils.save_checkpoint({{"model": {{}}, "epochs_run": 2}}, "model.pt")
"""


@pytest.mark.parametrize("call", ["torch.save", "os.fsync", "os.replace"])
def test_sigkill_amid_a_save_leaves_the_old_file(call, tmp_path):
    utils.save_checkpoint(OLD, tmp_path / "model.pt")
    (tmp_path / "killed.py").write_text(KILLED)
    died = python(tmp_path / "killed.py", call, cwd=tmp_path)
    assert died.returncode == -signal.SIGKILL
    assert torch.load(tmp_path / "model.pt")["epochs_run"] == 1
    utils.save_checkpoint(NEW, tmp_path / "model.pt")  # what was left behind is in nobody's way
    assert torch.load(tmp_path / "model.pt")["epochs_run"] == 2


def test_temporary_names_are_unique_across_hosts(tmp_path, monkeypatch):
    """A process number would not do: two hosts with one shared folder can have the same."""
    names, replace = set(), os.replace

    def replaced(source, target):
        names.add(source)
        replace(source, target)

    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(os, "replace", replaced)
    for _ in range(100):
        torch.manual_seed(0)
        utils.save_checkpoint(OLD, tmp_path / "model.pt")
    assert len(names) == 100

"""A save is whole or has not happened, and is on the disk when it says so."""

import os

import pytest
import torch

import utils

pytestmark = pytest.mark.quick


def test_order_of_writing(tmp_path, monkeypatch):
    """test_resume.py kills a process amid this."""
    path, calls, names = tmp_path / "model.pt", [], set()
    fsync, replace = os.fsync, os.replace

    def fsynced(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append("folder" if name == str(tmp_path) else "file")
        # What is not in the file by now, the disk will not hold when the name changes.
        assert name == str(tmp_path) or torch.load(name)["epochs_run"] == 2
        fsync(descriptor)

    def replaced(source, target):
        calls.append("rename")
        names.add(source)
        assert os.path.dirname(source) == str(tmp_path) and str(target) == str(path)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsynced)
    monkeypatch.setattr(os, "replace", replaced)
    for _ in range(2):
        torch.manual_seed(0)  # as a lesson does, on every host
        utils.save_checkpoint({"model": {"w": torch.ones(50)}, "epochs_run": 2}, path)
    assert calls == ["file", "rename", "folder"] * 2
    assert torch.load(path)["epochs_run"] == 2
    assert os.listdir(tmp_path) == ["model.pt"]
    # Two hosts may share the folder, and half a file of a process that was killed is in no way.
    assert len(names) == 2

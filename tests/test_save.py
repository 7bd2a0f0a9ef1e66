"""A save is atomic, and is on the disk when it returns."""

import os

import pytest
import torch

import utils

pytestmark = pytest.mark.quick


def test_order_of_writing(tmp_path, monkeypatch):
    """test_resume.py kills a process during this."""
    path, calls, names = tmp_path / "model.pt", [], set()
    fsync, replace = os.fsync, os.replace

    def fsynced(descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        calls.append("folder" if name == str(tmp_path) else "file")
        # The file must be complete before the rename, or the disk may lose a part of it.
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
    # Two hosts may share the folder, and a killed process may leave half a file.
    assert len(names) == 2

"""A save is atomic, and is on the disk when it returns."""

import os
import random

import pytest
import torch

import utils
from guard import UserError
from mingpt import data
from tests.processes import Process

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


def test_a_byte_that_changed_is_noticed(tmp_path):
    """torch.load ignores the checksums: 2 of 25 flipped bits would load other weights or counts."""
    path = tmp_path / "model.pt"
    optimizer = {"state": {}, "param_groups": [{"params": [0], "lr": 0.5}]}
    saved = {"model": {"w": torch.arange(1.0, 200.0)}, "optimizer": optimizer, "epochs_run": 10}
    utils.write(saved, path)
    whole, refused = path.read_bytes(), 0
    for bit in random.Random(0).sample(range(8 * len(whole)), 400):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            found = utils.read_checkpoint(path)
        except UserError:
            refused += 1
        else:  # the bit is in a part of the file that nothing reads
            assert torch.equal(found.pop("model")["w"], saved["model"]["w"])
            assert found == {"optimizer": optimizer, "epochs_run": 10}
    assert refused > 100
    entry = whole.rindex(b"PK\x01\x02", 0, whole.rindex(b"data/0"))
    path.write_bytes(whole[: entry + 38] + b"\x10" + whole[entry + 39 :])  # marked as a folder
    assert not utils.is_whole(path)


def test_tokens_that_changed_are_made_again(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a text to learn\n" * 50)
    path = data.prepare(str(text), "chars", tmp_path / "cache")
    whole = path.read_bytes()
    token = whole.index(torch.load(path)["tokens"].numpy().tobytes())
    disk = whole.rindex(b"PK\x01\x02") + 35  # the number of one, which only torch looks at
    for place in (token, disk):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert data.prepare(str(text), "chars", tmp_path / "cache") == path
        assert path.read_bytes() == whole


def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path):
    path, good = tmp_path / "model.pt", {"model": {"w": torch.ones(3)}, "epochs_run": 1}
    utils.save_checkpoint(good, path)
    whole = path.read_bytes()
    for spoilt in (torch.nan, torch.inf):
        with pytest.raises(UserError, match=r"after epoch 2: .* not finite; what was .* rate$"):
            utils.save_checkpoint({"model": {"w": torch.full((3,), spoilt)}, "epochs_run": 2}, path)
    assert path.read_bytes() == whole and os.listdir(tmp_path) == ["model.pt"]


def test_a_save_that_is_interrupted_leaves_nothing_beside_the_checkpoint(tmp_path, monkeypatch):
    """test_checkpoints.py fills the disk meanwhile."""

    def interrupted(content, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        utils.write({}, tmp_path / "model.pt")
    assert os.listdir(tmp_path) == []


def test_a_run_says_once_that_another_saves_to_its_path(tmp_path):
    """Except if it has several nodes, because these may share a disk: see test_multinode.py."""
    path, number = tmp_path / "multigpu.pt", 0
    with Process("multigpu", 1_000_000, 5, cwd=tmp_path) as process:
        for _ in range(2):
            number = process.wait_for("checkpoint saved", since=number)
            utils.write({}, path)
            for _ in range(2):  # the first of these may have begun before
                number = process.wait_for("checkpoint saved", since=len(process.lines))
    says = f"another process has replaced {path.name} since this run saved it: give each run its"
    assert process.err == f"multigpu.py: {says} own --checkpoint_path\n"

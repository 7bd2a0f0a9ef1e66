"""Refuse another run's checkpoint; resume this run's with the options of this start."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from guard import UserError
from mingpt import checkpoints, cpu, sample, trainer
from tests.faults import leftovers, slow_saves
from tests.mingpt import texts
from tests.processes import LIMIT, ROOT


@pytest.fixture
def made(group, config):
    """Make the CheckpointFile of a run with these options, and the run's optimizer."""

    def make(**options):
        args = config(**options)
        dataset, model, optimizer = trainer.load_train_objs(args)
        loader = trainer.prepare_dataloader(dataset, args)
        return checkpoints.CheckpointFile(args, model, loader), optimizer

    return make


def save(file, **content):
    file.save({"model": {}, "steps_run": 3, **content})
    file.wait()


OTHERS = {
    "n_layer": (2, r"mingpt.pt has n_layer 3, but you asked for 2: ask for 3, move it away"),
    "block_size": (8, r"mingpt.pt has block_size 16, but you asked for 8"),
    "data": ("another", r"mingpt.pt was trained on another text: give that as --data"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run(what, made, tmp_path, monkeypatch):
    save(made()[0])
    value, message = OTHERS[what]
    if what == "data":
        value = str(tmp_path / "another")
        Path(value).write_text(texts.markov(3000, seed=1))
    other, same = made(**{what: value})[0], made(dropout=0.3)[0]
    assert same.read()["steps_run"] == 3
    with pytest.raises(UserError, match=message):
        other.read()
    monkeypatch.setenv("LOCAL_RANK", "1")  # it reads no weights, but refuses too
    assert same.read() == {"steps_run": 0}
    with pytest.raises(UserError, match=message):
        other.read()


def test_options_of_a_start_count_not_those_of_the_file(made):
    file, optimizer = made()
    save(file, optimizer=optimizer.state_dict(), scaler={})
    changed = made(beta2=0.9, weight_decay=0.3)[0].read()
    optimizer.load_state_dict(changed["optimizer"])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0]
    assert [group["betas"] for group in optimizer.param_groups] == [(0.9, 0.9)] * 2
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(changed["scaler"])  # the user switches to fp16
    assert scaler.get_scale() > 1


def test_a_checkpoint_that_names_no_library_is_continued_with_torchs(made, config, monkeypatch):
    """A checkpoint from a GPU, even if oneDNN is faster here."""
    save(made()[0])
    monkeypatch.setattr(cpu, "seconds", lambda library, *_: float(library == "torch"))
    monkeypatch.setattr(checkpoints, "kernels", cpu.Products(config(products="auto")))
    file, _ = made()
    assert file.read()["steps_run"] == 3
    assert file.about["kernels"] == "torch"


@pytest.mark.parametrize("content, message", [
    (b"half of a file", "is damaged, or no checkpoint at all"),
    (None, "is not a checkpoint of mingpt"),
])  # fmt: skip
def test_a_file_that_is_no_checkpoint(content, message, tmp_path):
    path = tmp_path / "mingpt.pt"
    path.write_bytes(content) if content else torch.save({"model": {}, "optimizer": {}}, path)
    with pytest.raises(UserError, match=message):
        checkpoints.load(str(path))
    with pytest.raises(UserError, match=r"no checkpoint .*: train one"):
        checkpoints.load(str(path) + "x")


def test_saving_waits_for_no_disk(made, tmp_path, monkeypatch):
    """`save` waits only for the copy, and returns long before the disk has it."""
    file, weights = made()[0], torch.zeros(1000)
    disk, fsync = threading.Event(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (disk.wait(20), fsync(file)))
    file.save({"model": {"weight": weights}, "steps_run": 1})
    assert not (tmp_path / "mingpt.pt").exists()
    weights += 1  # the next step
    disk.set()
    file.wait()
    assert torch.load(tmp_path / "mingpt.pt")["model"]["weight"].sum() == 0


FAILING = """
import guard, torch
from types import SimpleNamespace
from mingpt import checkpoints
from mingpt.model import GPTConfig

def main():
    args = SimpleNamespace(checkpoint_path="mingpt.pt", compile=False)
    model = SimpleNamespace(config=GPTConfig())
    loader = SimpleNamespace(dataset=SimpleNamespace(about={}))
    file = checkpoints.CheckpointFile(args, model, loader)
    file.save({"model": {"w": torch.ones(9)}, "steps_run": 3})
    raise KeyError("boom")

guard.install_excepthook()
main()
"""


def test_a_save_under_way_is_completed_when_training_fails(tmp_path):
    path = f"{slow_saves(tmp_path / 'slow')['PYTHONPATH']}:{ROOT}"
    ended = subprocess.run(
        [sys.executable, "-c", FAILING], cwd=tmp_path, capture_output=True, text=True,
        timeout=LIMIT, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 1, ended
    assert re.fullmatch(r"(?s)Traceback .* in main\nKeyError: 'boom'\n", ended.stderr)
    assert checkpoints.load(str(tmp_path / "mingpt.pt"))["steps_run"] == 3
    assert sorted(leftovers(tmp_path)) == ["mingpt.pt", "slow"]


def test_ties_survive_the_copy_and_later_steps_do_not_reach_it():
    weight, square = torch.ones(2), torch.tensor([[1, 2], [3, 4]])
    copy = checkpoints._to_host({"a": weight, "b": [weight.view(2)], "c": weight[:1]}, {})
    both = checkpoints._to_host({"a": square, "b": square.t()}, {})
    assert both["b"].tolist() == [[1, 3], [2, 4]]  # where it is, and as large, but no tie
    weight.zero_()
    assert copy["a"].tolist() == [1, 1] and copy["c"].tolist() == [1]
    assert copy["a"].data_ptr() == copy["b"][0].data_ptr()


def junk(name, value):
    def change(checkpoint):
        checkpoint[name] = value(checkpoint[name]) if callable(value) else value

    return change


JUNK = {
    "lists": (junk("model", [1, 2]), "is not in the format of this series"),
    "an unknown field": (junk("model_config", lambda old: old | {"colour": 1}), "colour"),
    "a field too few": (
        junk("model_config", lambda old: old | {"n_embd": 50}), "n_embd is 50, but must be a mult"
    ),
    "another size": (junk("model_config", lambda old: old | {"n_layer": 1}), "mingpt can read"),
    "another vocabulary": (
        junk("text", lambda old: old | {"vocabulary": old["vocabulary"][:-1]}), "kinds of tokens"
    ),
    "no vocabulary": (junk("text", {"kind": "chars"}), "mingpt can read"),
    "-3 steps": (junk("steps_run", -3), "has steps_run -3, but must have at least 1"),
}


@pytest.mark.parametrize("kind", JUNK)
def test_writing_with_what_is_not_quite_a_checkpoint(kind, made, tmp_path, monkeypatch):
    file, _ = made()
    args = file.args
    model = trainer.load_train_objs(args)[1]
    save(file, model=model.state_dict())
    checkpoint = torch.load(args.checkpoint_path)
    change, message = JUNK[kind]
    change(checkpoint)
    torch.save(checkpoint, args.checkpoint_path)
    monkeypatch.setattr(sys, "argv", ["sample", "--checkpoint_path", args.checkpoint_path])
    monkeypatch.setattr(sample.guard, "install_excepthook", lambda: None)
    with pytest.raises(UserError, match=message):
        sample.main()

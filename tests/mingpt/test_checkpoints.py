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
    """Make the CheckpointFile of a run with these options, and what it would save after a step."""

    def make(**options):
        args = config(**options)
        dataset, model, optimizer = trainer.load_train_objs(args)
        loader = trainer.prepare_dataloader(dataset, args)
        model(*loader[0][0]).backward()
        optimizer.step()
        states = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": {}}
        states["rng"] = [checkpoints.rng_state(torch.device("cpu"))]
        return checkpoints.CheckpointFile(args, model, loader), {**states, "steps_run": 3}

    return make


def save(file, content):
    file.save(content)
    file.wait()


OTHERS = {
    "n_layer": (2, r"mingpt.pt has n_layer 3, but you asked for 2: ask for 3, move it away"),
    "block_size": (8, r"mingpt.pt has block_size 16, but you asked for 8"),
    "data": ("another", r"mingpt.pt was trained on another text: give that as --data"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run(what, made, tmp_path):
    save(*made())
    value, message = OTHERS[what]
    if what == "data":
        value = str(tmp_path / "another")
        Path(value).write_text(texts.markov(3000, seed=1))
    other, same = made(**{what: value})[0], made(dropout=0.3)[0]
    assert same.read()["steps_run"] == 3
    with pytest.raises(UserError, match=message):
        other.read()


def test_options_of_a_start_count_not_those_of_the_file(made):
    save(*made())
    changed = made(beta2=0.9, weight_decay=0.3)[0].read()
    groups = changed["optimizer"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.3, 0]
    assert [group["betas"] for group in groups] == [(0.9, 0.9)] * 2
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(changed["scaler"])  # the user switches to fp16
    assert scaler.get_scale() > 1


def test_only_one_process_of_a_node_reads_the_file(made, monkeypatch):
    """tests/mingpt/test_once.py checks that all raise its error."""
    file, content = made()
    save(file, content)
    monkeypatch.setattr(checkpoints, "run_once_per_node", lambda function: None)
    assert file.read() == {"steps_run": 0}


def test_a_checkpoint_that_names_no_library_is_continued_with_torchs(made, config, monkeypatch):
    """A checkpoint from a GPU, even if oneDNN is faster here."""
    save(*made())
    monkeypatch.setattr(cpu, "seconds", lambda library, *_: float(library == "torch"))
    monkeypatch.setattr(checkpoints, "kernels", cpu.Products(config(products="auto")))
    file, _ = made()
    assert file.read()["steps_run"] == 3
    assert file.about["kernels"] == "torch"


@pytest.mark.parametrize("content, message", [
    (b"half of a file", "is damaged, or no checkpoint at all"),
    (None, "does not fit this run .KeyError: 'steps_run'"),
])  # fmt: skip
def test_a_file_that_is_no_checkpoint(content, message, tmp_path):
    path = tmp_path / "mingpt.pt"
    path.write_bytes(content) if content else torch.save({"model": {}, "optimizer": {}}, path)
    with pytest.raises(UserError, match=message):
        checkpoints.load(str(path))


def test_a_sample_without_a_checkpoint(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")  # to open it would wait for ever
    monkeypatch.setattr(sample.guard, "install_excepthook", lambda: None)
    for name in ("none", "fifo"):
        monkeypatch.setattr(sys, "argv", ["sample", "--checkpoint_path", str(tmp_path / name)])
        with pytest.raises(UserError, match=f"no checkpoint .*{name}: train one, or pass its --"):
            sample.main()


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
from mingpt.config import Config
from mingpt.model import GPT, GPTConfig

def main():
    args, model = Config(), GPT(GPTConfig(1, 1, 1, 1, 1))
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
    assert torch.load(tmp_path / "mingpt.pt")["steps_run"] == 3
    assert sorted(leftovers(tmp_path)) == ["mingpt.pt", "slow"]


def test_ties_survive_the_copy_and_later_steps_do_not_reach_it():
    weight, square = torch.ones(2), torch.tensor([[1, 2], [3, 4]])
    copy = checkpoints._to_host({"a": weight, "b": [weight.view(2)], "c": weight[:1]}, {})
    both = checkpoints._to_host({"a": square, "b": square.t()}, {})
    assert both["b"].tolist() == [[1, 3], [2, 4]]  # where it is, and as large, but no tie
    weight.zero_()
    assert copy["a"].tolist() == [1, 1] and copy["c"].tolist() == [1]
    assert copy["a"].data_ptr() == copy["b"][0].data_ptr()


def other(**changes):
    return lambda old: {**old, **changes}


def without(name):
    return lambda old: {key: value for key, value in old.items() if key != name}


def typed(kind):
    return lambda old: {name: weight.to(kind) for name, weight in old.items()}


def state(change):
    def changed(old):
        change(old["state"])
        return old

    return changed


# The part, what it becomes, and what the line says.
JUNK = {
    "-3 steps": ("steps_run", lambda _: -3, "steps_run is -3"),
    "2.5 steps": ("steps_run", lambda _: 2.5, "steps_run is 2.5"),
    "a list as model": ("model", lambda _: [1, 2], "'list' object has no attribute 'values'"),
    "a weight too few": ("model", without("lm_head.weight"), "Missing key"),
    "a weight of another type": (
        "model", lambda old: {**old, "lm_head.weight": old["lm_head.weight"].half()},
        "not all weights are float32",
    ),
    "a bias of 0 to 255": ("model", typed(torch.uint8), "ValueError: exp_avg is"),
    "an unknown field": ("model_config", other(colour=1), "unexpected keyword .* 'colour'"),
    "a field too few": ("model_config", without("n_layer"), "Missing key"),
    "an impossible field": ("model_config", other(n_embd=50), "n_embd is 50, but must be a mult"),
    "another size": ("model_config", other(n_layer=1), "Unexpected key"),
    "layers without weights": ("model_config", other(n_layer=10**4), "there are 41 weights"),
    "half a layer": ("model_config", other(n_layer=2.5), "'float' object"),
    "a list as shape": ("model_config", lambda _: [1, 2], "must be a mapping, not list"),
    "a vocabulary of another size": ("text", other(vocabulary="ab"), "2 kinds of tokens for 8 sc"),
    "GPT-2's vocabulary": ("text", other(kind="gpt2"), "50257 kinds of tokens for 8 scores"),
    "no vocabulary": ("text", without("vocabulary"), "KeyError: 'vocabulary'"),
    "a number as vocabulary": ("text", other(vocabulary=8), "'int' object has no attribute"),
    "a list as text": ("text", lambda _: ["chars"], "list indices must be"),
    "no random states": ("rng", lambda _: [], "list index out of range"),
    "random states of zeros": (
        "rng", lambda old: [{"cpu": torch.zeros_like(old[0]["cpu"])}], "Invalid mt19937 state"
    ),
    "random states of a GPU alone": ("rng", lambda old: [{"cuda": old[0]["cpu"]}], "'cpu'"),
    "a word as scaler": ("scaler", lambda _: "scale", "'str' object has no attribute 'values'"),
    "words in the scaler": ("scaler", lambda _: {"scale": "1"}, "'>=' not supported"),
    "a scale of NaN": ("scaler", lambda _: {"scale": torch.nan}, "scale is nan"),
    "a state too few": ("optimizer", state(lambda old: old.pop(5)), "steps with 39 weights"),
    "another step": (
        "optimizer", state(lambda old: old[5]["step"].add_(1)), r"took \[.*2.0.*\] steps with"
    ),
    "steps below 0": (
        "optimizer", state(lambda old: [one["step"].neg_() for one in old.values()]), "took"
    ),
    "two numbers as step": (
        "optimizer", state(lambda old: old[5].update(step=torch.ones(2))), "to Scalar"
    ),
    "a square below 0": (
        "optimizer", state(lambda old: old[4]["exp_avg_sq"].sub_(9)), "average of squares, is below"
    ),
    "a tensor as library": ("kernels", lambda _: torch.ones(3), "kernels is tensor"),
    "a moment of another shape": (
        "optimizer",
        lambda old: {**old, "state": {0: {"exp_avg": torch.ones(7)}}},
        r"exp_avg is .*7.*, as no weight",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", JUNK)
def test_what_is_not_quite_a_checkpoint(kind, made, tmp_path, monkeypatch):
    """Neither the trainer nor sample.py uses it."""
    file, content = made()
    save(file, content)
    part, change, message = JUNK[kind]
    checkpoint = torch.load(file.path)
    checkpoint[part] = change(checkpoint.get(part))
    torch.save(checkpoint, file.path)
    message = rf"^[^\n]*mingpt.pt does not fit this run \([^\n]*{message}[^\n]*\): move it away"
    with pytest.raises(UserError, match=message):
        file.read()
    monkeypatch.setattr(sys, "argv", ["sample", "--checkpoint_path", file.path])
    monkeypatch.setattr(sample.guard, "install_excepthook", lambda: None)
    with pytest.raises(UserError, match=message):
        sample.main()

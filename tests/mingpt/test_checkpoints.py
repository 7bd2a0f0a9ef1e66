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
from mingpt import checkpoints, sample, trainer
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


@pytest.mark.parametrize("missing", ["steps_run", "model", "optimizer", "rng", "text"])
def test_a_checkpoint_of_another_script(missing, made):
    """Such as a lesson's, or that of an earlier stage of this trainer."""
    file, content = made()
    save(file, content)
    saved = torch.load(file.path)
    del saved[missing]
    torch.save(saved, file.path)
    with pytest.raises(UserError, match=rf"does not fit this run \(KeyError: '{missing}'\): move"):
        file.read()


def test_saving_leaves_the_other_threads_their_cores(made):
    """A second team of OpenMP threads would halve the speed of training until its end."""
    file, content = made()
    save(file, content)
    threads = file._thread.submit(torch.get_num_threads).result()
    assert threads == 1


def test_what_the_saving_thread_cannot_do_is_said(made):
    file, content = made()
    file.save({**content, "model": {"weight": torch.tensor([torch.nan])}})
    with pytest.raises(UserError, match=r"cannot save .*mingpt.pt after step 3: .* not finite"):
        file.wait()


def test_a_sample_without_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(sample.guard, "install_excepthook", lambda: None)
    monkeypatch.setattr(sys, "argv", ["sample", "--checkpoint_path", str(tmp_path / "none")])
    with pytest.raises(UserError, match=r"no checkpoint .*none: train one, or pass its --"):
        sample.main()
    (tmp_path / "none").write_text("a text")
    with pytest.raises(UserError, match=r"none is damaged.*: pass the --checkpoint_path of a GPT"):
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

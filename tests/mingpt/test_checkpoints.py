"""A checkpoint of another run is refused; one of this run continues with this start's options."""

import os
import re
import subprocess
import sys

import pytest
import torch

from guard import UserError
from mingpt import checkpoints
from tests.faults import leftovers, slow_saves
from tests.mingpt import texts
from tests.mingpt.conftest import options
from tests.mistakes import ALONE
from tests.processes import LIMIT, ROOT

OTHERS = {
    "n_layer": (2, r"mingpt.pt has n_layer 3, but 2 was asked for: ask for 3, move it away"),
    "block_size": (8, r"mingpt.pt has block_size 16, but 8 was asked for"),
    "data": ("uniform", r"of 8 tokens \(chars\), but that of this text is another, of 16"),
    "other": ("markov", r"mingpt.pt was trained on another text: give that as --data"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_a_checkpoint_of_another_run(what, group, config, tmp_path, monkeypatch):
    from mingpt import trainer

    def file(**others):
        args = config(**others)
        dataset, model, _ = trainer.load_train_objs(args)
        loader = trainer.prepare_dataloader(dataset, args)
        return checkpoints.CheckpointFile(args, model, loader), model

    first, model = file()
    first.save({"model": model.state_dict(), "steps_run": 3})
    first.wait()
    assert first.read()["steps_run"] == 3
    value, message = OTHERS[what]
    if value in ("uniform", "markov"):
        path = tmp_path / value
        path.write_text(getattr(texts, value)(3000, seed=1))
        what, value = "data", str(path)
    other, same = file(**{what: value})[0], file(dropout=0.3)[0]
    assert same.read()["steps_run"] == 3
    with pytest.raises(UserError, match=message):
        other.read()
    monkeypatch.setenv("LOCAL_RANK", "1")  # reads no weights, but refuses it, too
    assert same.read() == {"steps_run": 0}
    with pytest.raises(UserError, match=message):
        other.read()


def test_options_of_a_start_count_not_those_of_the_file(group, config):
    from mingpt import trainer

    args = config()
    dataset, model, optimizer = trainer.load_train_objs(args)
    loader = trainer.prepare_dataloader(dataset, args)
    file = checkpoints.CheckpointFile(args, model, loader)
    state = {"optimizer": optimizer.state_dict(), "scaler": {}, "steps_run": 3}
    file.save({"model": model.state_dict(), **state})
    file.wait()
    args = config(beta2=0.9, weight_decay=0.3)
    changed = checkpoints.CheckpointFile(args, model, loader).read()
    optimizer.load_state_dict(changed["optimizer"])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0]
    assert [group["betas"] for group in optimizer.param_groups] == [(0.9, 0.9)] * 2
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(changed["scaler"])  # asked for fp16 after another precision
    assert scaler.get_scale() > 1


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


def other_weights(checkpoint):
    checkpoint["model"] = {f"module.{name}": value for name, value in checkpoint["model"].items()}


def one_group(checkpoint):
    groups = checkpoint["optimizer"]["param_groups"]
    groups[0]["params"] += groups.pop()["params"]


def state_of_sgd(checkpoint):
    """AdamW loads it, and fails in its first step."""
    states = checkpoint["optimizer"]["state"]
    for number, state in states.items():
        states[number] = {"momentum_buffer": state["exp_avg"]}


OF_ANOTHER = {
    other_weights: r"Missing key\(s\) in state_dict: |Unexpected key\(s\) in state_dict: ",
    one_group: "loaded state dict has a different number of parameter groups",
    state_of_sgd: r"'\w+'",
}


@pytest.mark.parametrize("change", OF_ANOTHER)
def test_a_model_or_an_optimizer_of_another_script(change, group, config, text, tmp_path):
    from mingpt import trainer

    args = config()
    dataset, model, optimizer = trainer.load_train_objs(args)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    file = checkpoints.CheckpointFile(args, model, trainer.prepare_dataloader(dataset, args))
    file.save({
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": {},
        "rng": [checkpoints.rng_state(torch.device("cpu"))], "steps_run": 3,
    })  # fmt: skip
    file.wait()
    path = tmp_path / "mingpt.pt"
    checkpoint = torch.load(path)
    change(checkpoint)
    torch.save(checkpoint, path)
    before = path.read_bytes()

    def run(module, *words):
        return subprocess.run(
            [sys.executable, "-m", module, *map(str, words)], cwd=tmp_path, capture_output=True,
            text=True, timeout=LIMIT,
            env={**os.environ, **ALONE, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    ended = run("mingpt.main", *options(data=text))
    line = rf"main.py: mingpt.pt belongs to another model or optimizer \(({OF_ANOTHER[change]}).*\)"
    assert ended.returncode == 2, ended
    assert re.fullmatch(rf"{line}: move it away to .*\n", ended.stderr), ended
    assert len(ended.stderr) < 300 and path.read_bytes() == before
    if change is other_weights:  # sample.py has no run that could start afresh
        ended = run("mingpt.sample", "--count", 1)
        assert ended.returncode == 1 and "Error(s) in loading state_dict" in ended.stderr
        assert "NameError" not in ended.stderr


FAILING = """
import guard, sys, torch
from guard import UserError
from types import SimpleNamespace
from mingpt import checkpoints
from mingpt.model import GPTConfig

def main():
    args = SimpleNamespace(checkpoint_path="mingpt.pt", compile=False)
    model = SimpleNamespace(config=GPTConfig())
    loader = SimpleNamespace(dataset=SimpleNamespace(about={}))
    file = checkpoints.CheckpointFile(args, model, loader)
    file.save({"model": torch.ones(9), "steps_run": 3})
    raise eval(sys.argv[1])

guard.install_excepthook()
main()
"""


@pytest.mark.parametrize("error, status, says", [
    ("UserError('something else')", 2, r"-c: something else\n"),
    ("KeyError('boom')", 1, r"(?s)Traceback .* in main\nKeyError: 'boom'\n"),
])  # fmt: skip
def test_a_save_under_way_is_completed_when_training_fails(error, status, says, tmp_path):
    path = f"{slow_saves(tmp_path / 'slow')['PYTHONPATH']}:{ROOT}"
    ended = subprocess.run(
        [sys.executable, "-c", FAILING, error], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == status and re.fullmatch(says, ended.stderr), ended
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

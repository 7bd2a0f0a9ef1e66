"""What can be known before the processes meet is said then, and by one of them."""

import os
import subprocess
import sys
import time
from dataclasses import asdict

import pytest
import torch

from guard import UserError
from mingpt import main as command_line
from mingpt.model import GPT
from tests.mingpt.conftest import options
from tests.processes import ROOT


def file(path, content):
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)


def checkpoint(args, path):
    file(path, {"model_config": asdict(args.shape(8)), "steps_run": 3, "text": {"kind": "chars"}})


def half(args, path):
    checkpoint(args, path)
    file(path, path.read_bytes()[:-100])


EMPTY = {"steps_run": 1, "model_config": {}, "text": {}}
CHECKPOINTS = {
    "damaged": (half, {}, r"mingpt.pt is damaged, or no checkpoint at all: move it away"),
    "no checkpoint": (lambda _, path: file(path, b"text"), {}, r"is damaged, or no checkpoint"),
    "foreign": (lambda _, path: file(path, {"steps_run": 1}), {}, r"is not a checkpoint of mingpt"),
    "first stages": (lambda _, path: file(path, {"model": {}, "optimizer": {}}), {}, None),
    "layers": (checkpoint, {"n_layer": 2}, r"has n_layer 3, but 2 was asked for: ask for 3"),
    "block": (checkpoint, {"block_size": 8}, r"has block_size 16, but 8 was asked for"),
    "tokenizer": (checkpoint, {"tokenizer": "gpt2"}, r"has tokenizer chars, but gpt2 was asked"),
    "empty": (lambda _, path: file(path, EMPTY), {}, r"has block_size None, but 16 was asked for"),
    "fits": (checkpoint, {"dropout": 0.3}, None),
}


@pytest.fixture
def alone(monkeypatch):
    """The environment of one process of two, of which the other never comes."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)


def known(args, message):
    assert not torch.distributed.is_initialized()
    if message is None:
        return command_line.ready(args)
    with pytest.raises(UserError, match=message):
        command_line.ready(args)


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_that_does_not_fit(kind, config, alone, tmp_path):
    write, others, message = CHECKPOINTS[kind]
    if "tokenizer" in others:
        pytest.importorskip("tiktoken", reason="no tiktoken: --tokenizer gpt2 needs it")
    write(config(), tmp_path / "mingpt.pt")
    known(config(**others), message)


@pytest.mark.parametrize("length, message", [
    (0, "the text has 0 tokens, but must have 20"), (19, "the text has 19 tokens, but must have"),
    (71, "the text has 71 tokens, .* 64, .* but block_size is 64: .* at most 63$"), (72, None),
])  # fmt: skip
def test_a_text_that_is_too_short(length, message, config, alone, tmp_path):
    text = tmp_path / "short"
    text.write_text("ä" * length)
    known(config(data=str(text), block_size=64), message)


@pytest.mark.parametrize("others, message", [
    ({"n_embd": 96}, r"the model has wpe.weight of 16 × 96, but .* has one of 16 × 48"),
    ({"n_layer": 4}, r"the model has h.3.ln_1.weight of 48, but .* has no such"),
    ({"block_size": 20}, r"block_size is 20, but must be at most 16, that of "),
    ({"tokenizer": "gpt2"}, r"the model has wte.weight of 50257 × 48, but .* has one of 97 × 48"),
    ({"block_size": 9}, None),
])  # fmt: skip
def test_weights_that_do_not_fit(others, message, config, alone, tmp_path):
    save_file = pytest.importorskip("safetensors.torch").save_file
    pytest.importorskip("tiktoken", reason="no tiktoken: --tokenizer gpt2 needs it")
    state = GPT(config().shape(97)).transformer.state_dict()
    for name, weight in state.items():
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            state[name] = weight.t().contiguous()
    path = tmp_path / "model.safetensors"
    save_file(state, path)
    known(config(init_from=str(path), **others), message)


HOLD = """
import os, time
if "HELD" in os.environ:
    real = time.sleep
    def sleep(seconds):
        if seconds == 3:
            open(os.environ["HELD"], "w").close()
            seconds = 1000
        real(seconds)
    time.sleep = sleep
"""


def started(rank, words, folder, **held):
    env = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    env |= {"MASTER_PORT": "9", "PYTHONPATH": f"{folder}:{ROOT}", **held}
    return subprocess.Popen(
        [sys.executable, "-m", "mingpt.main", *map(str, words)], cwd=folder,
        env={**os.environ, **env}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_said_by_one_rank_where_the_launcher_ends_the_others(tmp_path):
    """As mpirun does, and srun with --kill-on-bad-exit. Left alone, the other says it, too."""
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    (tmp_path / "short").write_text("too short")
    words, held = options(data="short"), tmp_path / "held"
    said = "main.py: the text has 9 tokens, but must have 20: a tenth validates\n"
    first, other, alone = running = [
        started("0", words, tmp_path), started("1", words, tmp_path, HELD=str(held)),
        started("1", words, tmp_path),
    ]  # fmt: skip
    try:
        assert (first.wait(60), first.communicate()[1]) == (2, said)
        end = time.monotonic() + 60
        while not held.exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        other.kill()
        assert other.communicate()[1] == ""
        assert (alone.wait(60), alone.communicate()[1]) == (2, said)
    finally:
        for process in running:
            process.kill()
            process.wait()

"""GPT-2's byte pairs: the real ones where they can be had, and a small stand-in, trained on."""

import math
import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("tiktoken", reason="no tiktoken: --tokenizer gpt2 needs it")

import tiktoken

from guard import UserError
from mingpt import tokens
from tests.mingpt import texts
from tests.mingpt.conftest import options
from tests.processes import ROOT, STANDALONE, run

# What Python runs first: the name gpt2 stands for 256 bytes and one pair, with tiktoken as it is.
STAND_IN = r"""
import tiktoken, tiktoken.registry
ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
tiktoken.registry.ENCODINGS["gpt2"] = tiktoken.Encoding(
    "gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
)
"""


@pytest.mark.skipif(
    "TIKTOKEN_CACHE_DIR" not in os.environ,
    reason="GPT-2's byte pairs: no TIKTOKEN_CACHE_DIR that has them, and nothing is downloaded",
)
def test_the_real_ones():
    kind = tokens.build("gpt2", "")
    text = "Hello, wörld <|endoftext|>"
    assert len(kind) == 50257
    assert kind.encode("Hello world").tolist() == [15496, 995]
    assert tokens.restore(kind.about).decode(kind.encode(text).tolist()) == text


def test_a_vocabulary_that_cannot_be_had(monkeypatch):
    def get_encoding(_):
        raise ConnectionError

    monkeypatch.setattr(tiktoken, "get_encoding", get_encoding)
    message = r"vocabulary \(ConnectionError\): connect once, or set TIKTOKEN_CACHE_DIR"
    with pytest.raises(UserError, match=message):
        tokens.build("gpt2", "")


def test_a_training_and_a_sample(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STAND_IN)
    text = "ab ä <|endoftext|> " * 100
    (tmp_path / "text").write_text(text)
    env = {"PYTHONPATH": str(tmp_path)}
    words = options(data="text", tokenizer="gpt2", total_steps=8, learning_rate=0.01)
    process = run("mingpt", *words, cwd=tmp_path, env=env, launcher=STANDALONE)
    assert process.status == 0, process.tail
    (path,) = (tmp_path / "data").iterdir()
    kept = torch.load(path)["tokens"]
    # "ab" is one token, ä two; the mark of an end is no end in the middle of a text
    assert (kept.dtype, len(kept), max(kept.tolist())) == (torch.uint16, len(text), 256)
    assert texts.curve(tmp_path)[8] < math.log(50257)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "CUDA_VISIBLE_DEVICES": ""}
    sample = [sys.executable, "-m", "mingpt.sample", "--prompt", "ab ä", "--temperature", "0"]
    said = subprocess.run(
        sample, cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 0 and said.stdout.startswith("ab ä"), said

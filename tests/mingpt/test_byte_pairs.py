"""GPT-2's byte pairs, with a small stand-in that needs no download."""

import math

import pytest
import torch

pytest.importorskip("tiktoken", reason="no tiktoken: --tokenizer gpt2 needs it")

import tiktoken

from guard import UserError
from mingpt import tokens
from tests.mingpt import texts
from tests.mingpt.conftest import options, python
from tests.mistakes import ALONE
from tests.processes import ROOT, STANDALONE, run

# Python runs this first: the name gpt2 gets 256 bytes and one pair; tiktoken stays as it is.
STAND_IN = r"""
import tiktoken, tiktoken.registry
ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
tiktoken.registry.ENCODINGS["gpt2"] = tiktoken.Encoding(
    "gpt2", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
)
"""


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
    # "ab" is one token, ä two; an end-of-text mark inside a text is plain text
    assert (kept.dtype, len(kept), max(kept.tolist())) == (torch.uint16, len(text), 256)
    assert texts.curve(tmp_path)[8] < math.log(50257)
    words = ("--prompt", "ab ä", "--temperature", 0)
    said = python("sample", *words, cwd=tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert said.returncode == 0 and said.stdout.startswith("ab ä"), said
    before = (tmp_path / "mingpt.pt").read_bytes()
    refused = python("main", *options(data="text"), cwd=tmp_path, **ALONE)
    assert refused.stderr.startswith(
        "main.py: mingpt.pt has tokenizer gpt2, but you asked for chars: ask for gpt2, move it away"
    )
    assert refused.returncode == 2 and (tmp_path / "mingpt.pt").read_bytes() == before

"""Fine-tuning starts from published weights, as Hugging Face writes them."""

import pytest
import torch

pytest.importorskip("safetensors", reason="no safetensors: --init_from needs it")

from safetensors.torch import save_file

from guard import UserError
from mingpt import weights
from mingpt.model import GPT, GPTConfig
from tests.faults import same
from tests.mingpt.test_trainer import train

SHAPE = {"vocab_size": 97, "n_layer": 2, "n_head": 4, "n_embd": 32, "dropout": 0.0}


def made(**others):
    return GPT(GPTConfig(**{**SHAPE, "block_size": 16, **others})).eval()


@pytest.fixture
def published(tmp_path):
    """A file that Hugging Face's GPT-2 saved, and that model."""
    transformers = pytest.importorskip("transformers", reason="no transformers to compare with")
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4)).eval()  # fmt: skip
    for weight in theirs.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    theirs.save_pretrained(tmp_path)
    return tmp_path / "model.safetensors", theirs


@pytest.mark.parametrize("block_size, by", [(16, "Hugging Face"), (9, "OpenAI")])
def test_the_model_becomes_the_published_one(block_size, by, published):
    path, theirs = published
    if by == "OpenAI":  # shorter names, and the causal masks
        state = theirs.transformer.state_dict()
        masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 16, 16) for layer in range(2)}
        save_file({**state, **masks}, path)
    model = made(block_size=block_size)
    weights.load(model, path)
    tokens = torch.arange(18).view(2, 9) * 5
    with torch.no_grad():
        ours, their = model(tokens), theirs(tokens).logits
    assert their.abs().max() > 0.5 and (ours - their).abs().max() < 1e-5
    assert model.lm_head.weight is model.transformer.wte.weight


@pytest.mark.parametrize("others, message", [
    ({"n_embd": 64}, r"model has wte.weight of 97 × 64, but .* has one of 97 × 32: ask for its"),
    ({"vocab_size": 5}, r"the model has wte.weight of 5 × 32, but .* has one of 97 × 32"),
    ({"n_layer": 3}, r"the model has h.2.ln_1.weight of 32, but .* has no such"),
    ({"block_size": 20}, r"block_size is 20, but must be at most 16, that of .*model.safetensors"),
])  # fmt: skip
def test_another_shape_is_refused(others, message, published):
    with pytest.raises(UserError, match=message):
        weights.load(made(**others), published[0])


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(UserError, match=r"cannot read --init_from .*: No such file"):
        weights.load(made(), tmp_path / "none")
    (tmp_path / "half").write_bytes(b"half of a file")
    with pytest.raises(UserError, match=r"cannot read --init_from .*half: "):
        weights.load(made(), tmp_path / "half")


def transposed(name, weight):
    """As it is published."""
    is_linear = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
    return weight.t().contiguous() if is_linear else weight.clone()


def test_fine_tuning_in_half_precision_goes_on_as_if_never_stopped(text, tmp_path):
    torch.manual_seed(1)  # the run's is 0
    config = GPTConfig.preset("gpt-nano", vocab_size=8, block_size=16)
    state = GPT(config).transformer.state_dict()
    state = {name: transposed(name, weight) for name, weight in state.items()}
    save_file(state, tmp_path / "published.safetensors")
    given = {"init_from": str(tmp_path / "published.safetensors"), "precision": "fp16"}
    given |= {"warmup_steps": 0, "learning_rate": 1e-3, "min_learning_rate": 1e-3}
    kept = train(tmp_path / "whole", text, 1, total_steps=8, **given).checkpoint
    first = train(tmp_path / "first", text, 1, total_steps=4, **given).checkpoint
    resumed = train(tmp_path / "resumed", text, 1, start=first, total_steps=8, **given)
    assert "Resuming after step 4" in resumed.out and same(resumed.checkpoint, kept)
    assert kept["scaler"]["scale"] > 1
    moved = (kept["model"]["transformer.wpe.weight"] - state["wpe.weight"]).abs().max()
    assert 0 < moved < 0.02  # eight steps of 0.001

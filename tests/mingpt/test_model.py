"""The model is GPT-2: causal, and initialized like GPT-2."""

import math
import shutil

import pytest
import torch
import torch.nn.functional as F

from mingpt.model import GPT, MODELS, GPTConfig


def made(seed=0, **options):
    torch.manual_seed(seed)
    options = {"vocab_size": 17, "block_size": 12, "dropout": 0.0, **options}
    return GPT(GPTConfig.preset("gpt-nano", **options))


def drawn(model, batch=2, time=None, seed=1):
    generator = torch.Generator().manual_seed(seed)
    shape = batch, time or model.config.block_size
    return torch.randint(model.config.vocab_size, shape, generator=generator)


SOON = {(name, "as it is") for name in ("gpt-nano", "gpt-micro", "gpt-mini", "gpt2")}
SOON.add(("gpt-nano", "compiled"))


@pytest.mark.parametrize("name, how", [
    pytest.param(name, how, marks=() if (name, how) in SOON else pytest.mark.soak)  # up to 6 GB
    for name in MODELS for how in ("as it is", "compiled")
])  # fmt: skip
def test_no_token_changes_a_logit_before_it(name, how):
    torch.manual_seed(0)
    model = GPT(GPTConfig.preset(name, vocab_size=17, block_size=12)).eval()
    if how == "compiled":
        if not shutil.which("g++"):
            pytest.skip("torch.compile on a CPU needs g++")
        model = torch.compile(model)
    tokens = torch.randint(17, (2, 12))
    with torch.no_grad():
        before = model(tokens)
        for place in (0, 5, 11):
            changed = tokens.clone()
            changed[:, place] = (changed[:, place] + 1) % 17
            after = model(changed)
            assert torch.equal(after[:, :place], before[:, :place])
            assert not torch.allclose(after[:, place], before[:, place])


def test_it_compiles_to_one_graph():
    model = made()
    model.compile(fullgraph=True, backend="aot_eager")  # raises if the compiler cannot trace it
    tokens = drawn(model)
    model(tokens, tokens).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("name, std", [("gpt-nano", 0.2), ("gpt2", 0.05)])
def test_logits_and_loss_are_those_of_hugging_face(name, std):
    transformers = pytest.importorskip("transformers")
    config = GPTConfig.preset(name, vocab_size=97, block_size=32, dropout=0.0)
    model = GPT(config).eval()
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=97, n_positions=32, n_embd=config.n_embd, n_layer=config.n_layer,
        n_head=config.n_head)).eval()  # fmt: skip
    torch.manual_seed(2)  # larger weights, because the initial ones are near zero
    for parameter, weight in theirs.named_parameters():
        gain = "ln_" in parameter and parameter.endswith("weight")
        torch.nn.init.normal_(weight, float(gain), std)
    state = theirs.state_dict()
    for name, weight in state.items():  # their Conv1D is a Linear, transposed
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            state[name] = weight.T.contiguous()
    model.load_state_dict(state)
    tokens = drawn(model)
    with torch.no_grad():
        ours, their = model(tokens), theirs(tokens, labels=tokens)
    assert their.logits.abs().max() > 1
    assert (ours - their.logits).abs().max() < 1e-5
    loss = model(tokens[:, :-1], tokens[:, 1:]) / tokens[:, 1:].numel()
    assert abs(loss - their.loss) < 1e-5


def test_initialisation():
    model = made(n_layer=8, n_head=4, n_embd=256, vocab_size=500)
    for name, weight in model.named_parameters():
        if "ln_" in name or name.endswith("bias"):
            assert (weight == name.endswith("weight")).all(), name
        else:
            std = 0.02 / math.sqrt(16) if name.endswith("c_proj.weight") else 0.02
            assert weight.std().item() == pytest.approx(std, rel=0.05), name
    assert model.lm_head.weight is model.transformer.wte.weight
    targets = drawn(model, seed=3)
    loss = model(drawn(model), targets).item() / targets.numel()
    assert loss == pytest.approx(math.log(500), rel=0.02)


def test_number_of_parameters():
    """Of the published models, on the meta device, since the largest needs 6 GB."""
    published = {"gpt2": 124_439_808, "gpt2-medium": 354_823_168, "gpt2-large": 774_030_080,
                 "gpt2-xl": 1_557_611_200}  # fmt: skip
    assert set(published) < set(MODELS)
    for name, number in published.items():
        with torch.device("meta"):
            model = GPT(GPTConfig.preset(name))
        assert sum(weight.numel() for weight in model.parameters()) == number


def test_only_matrices_decay():
    model = made()
    decayed, others = model.parameter_groups(0.3)
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.3, 0)
    assert {weight.dim() for weight in decayed["params"]} == {2}
    assert {weight.dim() for weight in others["params"]} == {1}
    assert len(decayed["params"] + others["params"]) == len(list(model.parameters()))


def test_dropout_is_in_training_only():
    model, tokens = made(dropout=0.5), torch.zeros(1, 12, dtype=torch.long)
    assert not torch.equal(model.train()(tokens), model(tokens))
    assert torch.equal(model.eval()(tokens), model(tokens))


@pytest.mark.parametrize("training", [True, False])
def test_generate(training):
    model = made(dropout=0.5).train(training)
    tokens = drawn(model, time=3)
    longest = model.generate(tokens, 20, temperature=0)  # longer than the block
    assert model.training is training
    assert longest.shape == (2, 23) and torch.equal(longest[:, :3], tokens)
    assert torch.equal(longest, model.generate(tokens, 20, top_k=1))
    assert torch.equal(longest, model.generate(tokens, 20, temperature=1e-45))  # would overflow
    model.eval()
    for end in (3, 12, 22):
        logits = model(longest[:, max(0, end - 12) : end])[:, -1]
        assert torch.equal(logits.argmax(-1), longest[:, end])


@pytest.mark.parametrize("length", [1, 3, 12, 15])
def test_the_cache_changes_nothing(length):
    model = made(n_layer=3)
    for weight in model.parameters():  # larger weights, because the initial ones are near zero
        torch.nn.init.normal_(weight, std=0.3)
    tokens = drawn(model, time=length)
    for options in ({"temperature": 0}, {"temperature": 0.7}):
        with_cache, without = (
            model.generate(
                tokens, 20, generator=torch.Generator().manual_seed(5), cache=cache, **options
            )
            for cache in (True, False)
        )
        assert torch.equal(with_cache, without)


def test_samples_follow_the_prediction():
    model = made().eval()
    many = drawn(model, batch=1, time=4).expand(4000, -1)
    generator = torch.Generator().manual_seed(0)
    torch.nn.init.normal_(model.lm_head.weight, std=0.1)
    odds = F.softmax(model(many[:1])[0, -1] / 0.8, dim=-1)
    drew = model.generate(many, 1, temperature=0.8, generator=generator)[:, -1]
    assert torch.allclose(drew.bincount(minlength=17) / 4000, odds, atol=0.03)
    three = model.generate(many, 1, top_k=3, generator=generator)[:, -1]
    assert set(three.tolist()) == set(odds.topk(3).indices.tolist())


def test_an_unknown_preset_and_too_long_a_text():
    with pytest.raises(ValueError, match="no preset 'gpt3', but gpt-nano, "):
        GPTConfig.preset("gpt3")
    with pytest.raises(ValueError, match="13 tokens, but the model looks back on 12"):
        made()(torch.zeros(1, 13, dtype=torch.long))

"""The formulas of costs.py: counted where scripts run, and near to what others have published."""

import subprocess
import sys
from dataclasses import replace

import pytest

from mingpt.model import GPT, GPTConfig
from parallel.scale.choose import MODELS, machine
from parallel.scale.costs import Layout, Work, memory, step
from parallel.scale.published import compared
from tests.processes import LIMIT, ROOT, environment


def run(*words):
    about = {"cwd": ROOT, "env": environment(), "timeout": LIMIT, "text": True}
    return subprocess.run([sys.executable, *words], capture_output=True, **about)


def test_collectives_are_those_of_the_scripts_at_any_number_of_ranks():
    """In one process, over torch's fake backend."""
    lines = run("docs/labs/fake_ranks.py").stdout.splitlines()
    assert len(lines) == 9
    assert [line for line in lines if "ranks, formula equal: " not in line] == []


@pytest.mark.parametrize("name, billions", [
    ("gpt2", 0.124439808), ("gpt2-xl", 1.557611200), ("llama3-8b", 8.030261248),
    ("llama3-70b", 70.553706496), ("llama3-405b", 405.853388800),
])  # fmt: skip
def test_parameters_are_those_of_the_models(name, billions):
    """Of Llama's: the cards on Hugging Face, meta-llama/Llama-3.1-8B and so on."""
    assert MODELS[name].parameters(1024) == round(billions * 1e9)


def test_gpt2_is_ours():
    shape = MODELS["gpt2"]
    own = replace(shape, layers=2, width=48, heads=3, kv_heads=3, hidden=192, vocab=67)
    config = GPTConfig(n_layer=2, n_head=3, n_embd=48, vocab_size=67, block_size=32)
    assert own.parameters(32) == sum(weight.numel() for weight in GPT(config).parameters())


def test_predictions_are_near_to_published_runs():
    """Where the chapter says so: it explains the others."""
    errors = {what: ours / told - 1 for what, told, ours in compared() if ours}
    far = {"405B, interleaved", "70B, TP 8 × FSDP 32", *(what for what in errors if "CP" in what)}
    assert {what for what, error in errors.items() if abs(error) > 0.02} == far


def test_memory_that_more_shards_save():
    """torchtitan: 82.4 GiB on 8 GPUs, 67.0 on 128."""
    few, many = (
        memory(MODELS["llama3-8b"], Layout(shards=n), Work(2 * n, 8192, 2)) for n in (8, 128)
    )
    assert few["activations"] == many["activations"]
    assert (few["weights"] - many["weights"]) / 2**30 == pytest.approx(82.4 - 67.0, rel=0.1)


@pytest.mark.parametrize("interleaved", [1, 4])
def test_the_bubble_is_that_of_the_formula(interleaved):
    """(S - 1) / (M v + S - 1) of the step: see the page on pipelines."""
    layout = Layout(pipeline=4, interleaved=interleaved)
    on = machine("h100", 0.4, 1e12)  # messages cost nothing
    on = replace(on, inside=1e30, between=1e30)
    spent = step(MODELS["gpt2"], layout, Work(8, 1024), on)
    assert spent["bubble"] / sum(spent.values()) == pytest.approx(3 / (8 * interleaved + 3))


def test_the_command_says_what_would_fit_and_needs_no_torch():
    found = run("-m", "parallel.scale", "predict", "llama3-405b", "--gpus", "16")
    assert found.returncode == 1 and "16 GPUs of 80 GB needs 415 GB each" in found.stderr
    assert Work(10, 1024).rounds(Layout(shards=8)) == 0  # or it would count 10 and compute 8
    wrong = run("-m", "parallel.scale", "predict", "gpt2", "--gpus", "-4")
    assert wrong.stderr.endswith("argument --gpus: is -4, but must be more than 0\n")
    code = "import sys, parallel.scale.__main__; sys.exit('torch' in sys.modules)"
    assert run("-c", code).returncode == 0
    best = run("-m", "parallel.scale", "predict", "gpt2", "--gpus", "8", "--context", "1024")
    assert "DDP 8" in best.stdout.splitlines()[2]

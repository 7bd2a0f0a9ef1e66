"""The formulas of costs.py: counted where scripts run, and near to what others have published."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.distributed.fake_pg import FakeStore

from docs.labs import fake_ranks
from mingpt.model import GPT, GPTConfig
from parallel.scale import large, measure
from parallel.scale.choose import MODELS, machine
from parallel.scale.costs import Layout, Work, memory, messages, step
from parallel.scale.published import compared
from tests.processes import LIMIT, ROOT, environment
from tests.worlds import world


def run(*words):
    about = {"cwd": ROOT, "env": environment(), "timeout": LIMIT, "text": True}
    return subprocess.run([sys.executable, *words], capture_output=True, **about)


@pytest.mark.parametrize("name, billions", [
    ("gpt2", 0.124439808), ("gpt2-xl", 1.557611200), ("llama3-8b", 8.030261248),
    ("llama3-70b", 70.553706496), ("llama3-405b", 405.853388800),
    ("mixtral-8x7b", 46.702792704),
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
    far |= {what for what in errors if "llm.c" in what or what.endswith(" 12,288")}
    assert {what for what, error in errors.items() if abs(error) > 0.02} == far


def test_divided_experts_are_not_gathered_and_tokens_travel_instead():
    mixtral, work = MODELS["mixtral-8x7b"], Work(64, 4096)
    whole = messages(mixtral, Layout(shards=16), work)
    divided = messages(mixtral, Layout(shards=16, experts=8), work)
    experts = 8 * 3 * 4096 * 14_336
    assert whole[0].numbers - divided[1].numbers == experts - experts // 8
    assert divided[0].operation == "all_to_all" and divided[0].times == 4 * 32
    assert divided[0].numbers == 2 * 4096 * 4096  # each token goes to two
    alone = messages(mixtral, Layout(shards=8, experts=8), work)[1].numbers
    assert alone == mixtral.block - experts  # an expert has one owner
    active = 12_879_925_248  # "12.9B": mistral.ai/news/mixtral-of-experts
    assert mixtral.flops(0) / 6 == active - 32_000 * 4096 - 4096  # the input embedding, a norm


def test_memory_that_more_shards_save():
    """torchtitan: 82.4 GiB on 8 GPUs, 67.0 on 128."""
    few, many = (
        memory(MODELS["llama3-8b"], Layout(shards=n), Work(2 * n, 8192, 2)) for n in (8, 128)
    )
    assert few["activations"] == many["activations"]
    assert (few["weights"] - many["weights"]) / 2**30 == pytest.approx(82.4 - 67.0, rel=0.1)
    # With a pipeline, FSDP gathers and sends once per step: its shards are whole meanwhile.
    piped = memory(MODELS["llama3-8b"], Layout(shards=64, pipeline=2), Work(128, 8192))
    assert piped["weights"] > 6 * MODELS["llama3-8b"].parameters(8192) / 2


@pytest.mark.parametrize("interleaved", [1, 4])
def test_the_bubble_is_that_of_the_formula(interleaved):
    """(S - 1) / (M v + S - 1) of the step: see the page on pipelines."""
    layout = Layout(pipeline=4, interleaved=interleaved)
    on = machine("h100", 0.4, 1e12)  # messages cost nothing
    on = replace(on, inside=1e30, between=1e30)
    spent = step(MODELS["gpt2"], layout, Work(8, 1024), on)
    assert spent["bubble"] / sum(spent.values()) == pytest.approx(3 / (8 * interleaved + 3))


def test_the_model_that_is_measured_gathers_each_layer_twice():
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        layers = measure.model(torch.device("cpu"), 8, 3, mesh)
        with fake_ranks.Collectives() as seen:
            layers(torch.ones(2, 8)).sum().backward()
    finally:
        dist.destroy_process_group()
    assert seen.times == {"all_gather": 6, "reduce_scatter": 3}
    assert seen.numbers == {"all_gather": 6 * 64, "reduce_scatter": 3 * 64}


def test_buckets_are_those_of_ddp():
    """Whose gradients are ready in the reverse order; it counts bytes, and logs them late."""
    sizes = [300_000, 100_000, 200_000, 5_000_000, 3_000_000, 7]

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ParameterList(torch.ones(n) for n in reversed(sizes))

        def forward(self, total):
            for part in self.parts:
                total = total * part.mean()
            return total

    def work(rank):
        ddp = DDP(Product())
        for _ in range(12):
            ddp(torch.ones(1)).backward()
        return ddp._get_ddp_logging_data()["rebuilt_bucket_sizes"]

    assert world(1, work) == [", ".join(str(4 * one) for one in measure.buckets(sizes))]


def test_times_between_and_beyond_what_was_measured():
    table = {100: 1.0, 200: 3.0, 400: 4.0}
    found = [measure.between(table, numbers) for numbers in (7, 100, 150, 300, 600)]
    assert found == [1.0, 1.0, 2.0, 3.5, 5.0]


def test_what_is_measured_here_is_printed():
    done = run("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2",
               "-m", "parallel.scale", "measure")  # fmt: skip
    rows = re.findall(r"^ *([\d,]+)((?: +\d+\.\d\d){4})$", done.stdout, re.MULTILINE)
    assert [int(numbers.replace(",", "")) for numbers, _ in rows] == measure.SIZES, done.stderr
    assert all(float(one) > 0 for _, four in rows for one in four.split()[:3])
    assert done.returncode == 0, done.stderr


def test_the_slowest_of_many():
    """The expected maximum of normal numbers: Harter (1961), table 1."""
    due = {1: 0, 4: 1.029, 8: 1.424, 100: 2.508}
    assert {n: large.slowest(n) for n in due} == pytest.approx(due, abs=0.021)


@pytest.mark.parametrize("hours, best", [(24, 117), (6, 57), (0.25, 9.1)])
def test_failures_cost_what_a_simulation_says(hours, best):
    """In minutes, a save takes 5 and a restart 10. The best intervals: Daly (2006), figures 3-5."""
    grid = [minutes / 10 for minutes in range(10, 2000)]
    found = min(grid, key=lambda every: large.lost(every, 5, 60 * hours, 10))
    assert found == pytest.approx(best, abs=0.5)
    for every in (best / 2, best, 2 * best):
        simulated = large.simulated(every, 5, 60 * hours, 10)
        assert large.lost(every, 5, 60 * hours, 10) == pytest.approx(simulated, abs=0.01)


def test_the_command_says_what_would_fit_and_needs_no_torch():
    found = run("-m", "parallel.scale", "predict", "llama3-405b", "--gpus", "16")
    assert found.returncode == 1 and "16 GPUs of 80 GB needs 415 GB each" in found.stderr
    assert Work(10, 1024).rounds(Layout(shards=8)) == 0  # or it would count 10 and compute 8
    wrong = run("-m", "parallel.scale", "predict", "gpt2", "--gpus", "-4")
    assert wrong.stderr.endswith("argument --gpus: is -4, but must be more than 0\n")
    code = "import sys, parallel.scale.__main__; sys.exit('torch' in sys.modules)"
    assert run("-c", code).returncode == 0

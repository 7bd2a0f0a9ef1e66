"""mingpt/cpu.py changes only the speed. All ranks and restarts multiply with the same library."""

import os
import re
import shutil
import signal

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from guard import UserError
from mingpt import cpu
from mingpt.model import MLP, GPTConfig
from tests.faults import same
from tests.mingpt.conftest import options, python
from tests.processes import ROOT, STANDALONE, Process

both = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()),
    reason="this torch has not both oneDNN and MKL, so there is nothing to choose",
)
PLAIN_LINEAR, PLAIN_GELU = F.linear, F.gelu


def results(layer, x, above):
    """What a layer returns, and the gradients of its input and parameters."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.backward(above)
    found = [y.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]
    assert all(tensor.is_contiguous() for tensor in found)
    return found


@both
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 16, 48), (3, 8, 48, 16), (1, 1, 7, 5), (5, 12, 65)])
def test_a_linear_layer_computes_the_same(shape, bias, config):
    torch.manual_seed(0)
    *batch, inputs, outputs = shape
    layer = nn.Linear(inputs, outputs, bias)
    x, above = torch.randn(*batch, inputs), torch.randn(*batch, outputs)
    plain = results(layer, x, above)
    cpu.apply(config(), None).use("onednn")
    assert F.linear is cpu.linear
    torch.testing.assert_close(results(layer, x, above), plain, rtol=1e-5, atol=1e-5)


def test_the_activation_computes_the_same(config):
    cpu.apply(config(), None)
    x = torch.linspace(-30, 30, 120_001, dtype=torch.float64)
    above = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    single, exact = x.float().requires_grad_(), x.clone().requires_grad_()
    before, given = single.detach().clone(), above.float()
    y, reference = F.gelu(single, approximate="tanh"), PLAIN_GELU(exact, approximate="tanh")
    y.backward(given, retain_graph=True)
    reference.backward(above)
    torch.testing.assert_close(y, reference.float(), rtol=1e-6, atol=4e-6)
    torch.testing.assert_close(single.grad, exact.grad.float(), rtol=1e-6, atol=4e-6)
    assert torch.equal(single, before) and torch.equal(given, above.float())  # left as they were
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(given)


def operators(function, *args):
    with torch.profiler.profile() as profile:
        function(*args).sum().backward()
    return [event.name for event in profile.events()]


@both
def test_only_fp32_on_a_cpu_that_is_not_compiled_is_computed_otherwise(config):
    cpu.apply(config(), None).use("onednn")
    layer = MLP(GPTConfig(n_embd=8, n_head=1, dropout=0.0))
    x = torch.randn(4, 8, requires_grad=True)
    names = operators(layer, x)
    assert names.count("mkldnn::_linear_pointwise") == 6  # forward, and two in backward, twice
    assert "_GELU" in names
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
        half = operators(layer, x)
    compiled = operators(torch.compile(layer, backend="aot_eager", fullgraph=True), x)
    without_tanh, double = operators(F.gelu, x), operators(layer.double(), x.double())
    for names in (half, compiled, without_tanh, double):
        assert not {"mkldnn::_linear_pointwise", "_GELU"} & set(names)


def test_nothing_is_replaced_on_a_gpu_or_compiled(config):
    for args, gpu in ((config(), torch.device("cuda", 0)), (config(compile=True), None)):
        assert cpu.apply(args, gpu) is None
    assert (F.linear, F.gelu) == (PLAIN_LINEAR, PLAIN_GELU)


def timed(monkeypatch, **seconds):
    monkeypatch.setattr(cpu, "seconds", lambda library, *_: seconds[library])


@both
def test_what_is_chosen(config, group, monkeypatch):
    shape = config().shape(8)
    auto, asked = (cpu.Products(config(products=name)) for name in ("auto", "torch"))
    assert auto.choose(shape) in ("torch", "onednn")  # as measured
    timed(monkeypatch, torch=2, onednn=1)
    assert auto.choose(shape) == "onednn"
    assert auto.choose(shape, "torch") == "torch"
    assert asked.choose(shape) == asked.choose(shape, "onednn") == "torch"
    timed(monkeypatch, torch=1, onednn=0.95)  # not worth it
    assert auto.choose(shape) == "torch"
    for library in ("mkl", "mkldnn"):
        with monkeypatch.context() as patch:
            patch.setattr(getattr(torch.backends, library), "is_available", lambda: False)
            timed(patch, torch=2, onednn=1)
            assert auto.choose(shape) == "torch"

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(UserError, match="no oneDNN: pass --products torch"):
        cpu.apply(config(products="onednn"), None)
    with pytest.raises(UserError, match="no oneDNN: pass --products torch"):
        auto.use("onednn")  # stored on another machine


# Python runs this first. In the first start, oneDNN is faster on rank 0, and torch's MKL on rank 1;
# in the second start it is the other way round.
OPPOSITE = """
import os
from pathlib import Path
from mingpt import cpu
rank, start = (os.environ.get(name, "0") for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
fast = "onednn" if rank == start else "torch"
cpu.seconds = lambda library, *_: float(library != fast)
use = cpu.Products.use
def noted(self, library):
    Path(os.environ["NOTES"], f"rank {rank}, start {start}").write_text(library)
    use(self, library)
cpu.Products.use = noted
"""


@both
def test_all_ranks_and_starts_multiply_with_one_library(text, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(OPPOSITE)
    folders = whole, killed = tmp_path / "whole", tmp_path / "killed"
    chosen = []
    for folder in folders:
        (folder / "notes").mkdir(parents=True)
        env = {"PYTHONPATH": str(tmp_path), "NOTES": str(folder / "notes")}
        words = options(data=text, total_steps=80, products="auto")
        with Process("mingpt", *words, cwd=folder, env=env, launcher=STANDALONE) as it:
            if folder is killed:
                seen = it.wait_for(r"Step +8 \| checkpoint")
                os.kill(it.workers()[1], signal.SIGKILL)
                it.wait_for("Resuming after step", seen)
            assert it.wait() == 0, it.tail
        chosen.append({path.name: path.read_text() for path in (folder / "notes").iterdir()})
    assert same(whole / "mingpt.pt", killed / "mingpt.pt")
    first, second = ([f"rank {rank}, start {start}" for rank in (0, 1)] for start in (0, 1))
    assert chosen[0] == dict.fromkeys(first, "onednn")
    assert chosen[1] == dict.fromkeys(first + second, "onednn")
    assert torch.load(whole / "mingpt.pt")["kernels"] == "onednn"


def test_the_trainer_does_without_it(text, tmp_path):
    """Without the file and the two lines that name it."""
    for path in ("guard.py", "utils.py"):
        shutil.copy(ROOT / path, tmp_path)
    package = shutil.copytree(ROOT / "mingpt", tmp_path / "mingpt")
    (package / "cpu.py").unlink()
    lines = (package / "main.py").read_text().splitlines(keepends=True)
    named = [line for line in lines if re.search(r"\bcpu\b", line)]
    assert len(named) == 2
    (package / "main.py").write_text("".join(line for line in lines if line not in named))
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
    alone |= {"MASTER_PORT": "0", "PYTHONPATH": str(tmp_path)}
    ended = python("main", *options(data=text, total_steps=2), cwd=tmp_path, **alone)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    assert "kernels" not in torch.load(tmp_path / "mingpt.pt")

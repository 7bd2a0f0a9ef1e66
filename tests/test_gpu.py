"""What GPUs are for: one process per GPU, over NCCL. tests/conftest.py hides them elsewhere."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from mingpt import flops
from tests.faults import same
from tests.mingpt import conftest
from tests.mingpt.conftest import options
from tests.processes import LIMIT, ONCE, ROOT, SPINE, STANDALONE, Process, environment, run
from tools import processes

text = conftest.text  # a fixture


@pytest.fixture(scope="module", autouse=True)
def gpus(tmp_path_factory):
    """Show the GPUs to what these tests start: `.count` to use, a power of 2, and their `.name`."""
    visible = os.environ["VISIBLE"]
    with pytest.MonkeyPatch.context() as patch:
        if visible == "all":
            patch.delenv("CUDA_VISIBLE_DEVICES")
        else:
            patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        ask = "from torch import cuda as c; print(n := c.device_count(), n and c.get_device_name())"
        words = [sys.executable, "-c", ask]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
        assert ran.returncode == 0, ran.stderr
        count, name = ran.stdout.strip().split(" ", 1)
        if count == "0":
            pytest.skip("no GPU here: NCCL, bf16, memory and resuming on a GPU are not checked")
        # What one run has compiled, the next one finds.
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield SimpleNamespace(count=2 ** (int(count).bit_length() - 1), name=name)


@pytest.fixture(autouse=True)
def turn(tmp_path_factory):
    """One test at a time uses the GPUs, because two of them fill one."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with open(shared / "gpu.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_every_lesson_trains_on_the_gpus_and_agrees(gpus, tmp_path):
    weights, places = [], set()

    def keep(storage, place):
        places.add(place.partition(":")[0])
        return storage  # on the CPU

    for lesson in SPINE:
        batch = 32 * gpus.count if lesson == "single_gpu" else 32
        process = run(lesson, 5, 2, "--batch_size", batch, cwd=tmp_path, nproc=gpus.count)
        assert process.status == 0, process.tail
        assert "CPU" not in process.out
        weights.append(torch.load(tmp_path / f"{lesson}.pt", map_location=keep)["model"]["weight"])
    assert places == {"cuda"}
    for other in weights[1:]:
        assert (other - weights[0]).abs().max() < 1e-6


@pytest.mark.parametrize(("preset", "own"), [
    ("gpu", {"dropout": 0.2, "model": "gpt-mini"}),
    ("8gpus", {"tokenizer": "chars", "batch_size": 32, "micro_batch_size": 2}),
])  # fmt: skip
@pytest.mark.parametrize("compiled", ["--no_compile", "--compile"])
def test_a_killed_gpt_resumes_exactly(preset, own, compiled, gpus, text, tmp_path):
    """With deterministic algorithms: without them, not even two undisturbed runs are equal."""
    own = {"total_steps": 80, **own}
    words = [preset, *options(data=text, **own), "--deterministic", compiled]
    once, killed = tmp_path / "once", tmp_path / "killed"
    once.mkdir()
    killed.mkdir()
    undisturbed = run("mingpt", *words, cwd=once, nproc=gpus.count, launcher=STANDALONE)
    assert undisturbed.status == 0, undisturbed.tail
    assert ("MFU" in undisturbed.out) == (gpus.name in flops.PEAKS)
    with Process("mingpt", *words, cwd=killed, nproc=gpus.count, launcher=STANDALONE) as it:
        it.wait_for("checkpoint saved")
        os.kill(it.workers()[-1], signal.SIGKILL)
        assert it.wait() == 0, it.tail
    assert "Resuming after step" in it.out
    assert same(once / "mingpt.pt", killed / "mingpt.pt")


def test_bf16_learns_as_fp32_does(gpus, text, tmp_path):
    """Losses of 24 steps within 1 %: bf16 keeps 8 binary digits of each factor of a product."""
    losses = {}
    for precision in ("fp32", "bf16"):
        own = {"precision": precision, "dropout": 0.0, "checkpoint_path": f"{precision}.pt"}
        words = [*options(data=text, **own), "--deterministic"]
        ran = run("mingpt", *words, cwd=tmp_path, nproc=gpus.count, launcher=ONCE)
        assert ran.status == 0, ran.tail
        losses[precision] = torch.tensor(
            list(map(float, re.findall(r"train loss ([\d.]+)", ran.out)))
        )
    assert losses["fp32"].shape == (24,)
    assert torch.allclose(losses["bf16"], losses["fp32"], rtol=0.01)
    assert not same(tmp_path / "fp32.pt", tmp_path / "bf16.pt")


def test_a_batch_that_does_not_fit_is_one_line(gpus, text, tmp_path):
    shape = {"model": "gpt2", "block_size": 1024, "micro_batch_size": 8192}
    words = options(data=text, **{**shape, "batch_size": 8192 * gpus.count})
    ran = run("mingpt", *words, cwd=tmp_path, nproc=gpus.count, launcher=ONCE)
    lines = [line for line in ran.err.splitlines() if line.startswith("main.py: ")]
    assert len(lines) == 1 and ran.status == 1, ran.tail
    assert re.match(
        r"main.py: the GPU is out of memory \(Tried to allocate [\d.]+ GiB; GPU \d has .*"
        r"is free.*\): lower .*--micro_batch_size", lines[0],
    )  # fmt: skip


@pytest.mark.parametrize("cpu", [(), ("--cpu", "2")], ids=["on the GPUs", "on the CPU"])
def test_the_doctor_diagnoses(cpu, gpus, tmp_path):
    count = 2 if cpu else gpus.count
    script = [ROOT / "multigpu_torchrun.py", 2, 1]
    start = ["torchrun", "--standalone", f"--nproc_per_node={count}", *script]
    words = [sys.executable, "-m", "ddp_doctor", *cpu, "--", *start]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "doctor")))
    ran = processes.run(words, cwd=tmp_path, env=environment(PYTHONPATH=path, OMP_NUM_THREADS="1"))
    assert ran.status == 0, ran.tail

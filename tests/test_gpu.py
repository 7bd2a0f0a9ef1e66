"""What GPUs are for: one process per GPU, over NCCL. tests/conftest.py hides them elsewhere."""

import os
import signal
import subprocess
import sys

import pytest
import torch

from tests.faults import same
from tests.mingpt import texts
from tests.mingpt.conftest import options
from tests.processes import LIMIT, ROOT, SPINE, STANDALONE, Process, environment, run
from tools import processes


@pytest.fixture(scope="module", autouse=True)
def gpus():
    """Show the GPUs to what these tests start. Returns how many to use: a power of 2."""
    visible = os.environ["VISIBLE"]
    with pytest.MonkeyPatch.context() as patch:
        if visible == "all":
            patch.delenv("CUDA_VISIBLE_DEVICES")
        else:
            patch.setenv("CUDA_VISIBLE_DEVICES", visible)
        words = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
        ran = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
        if not int(ran.stdout or 0):
            pytest.skip("no GPU here: NCCL, and resuming on a GPU, are not checked")
        yield 2 ** (int(ran.stdout).bit_length() - 1)


def test_every_lesson_trains_on_the_gpus_and_agrees(gpus, tmp_path):
    weights, places = [], set()

    def keep(storage, place):
        places.add(place.partition(":")[0])
        return storage  # on the CPU

    for lesson in SPINE:
        batch = 32 * gpus if lesson == "single_gpu" else 32
        process = run(lesson, 5, 2, "--batch_size", batch, cwd=tmp_path, nproc=gpus)
        assert process.status == 0, process.tail
        assert "CPU" not in process.out
        weights.append(torch.load(tmp_path / f"{lesson}.pt", map_location=keep)["model"]["weight"])
    assert places == {"cuda"}
    for other in weights[1:]:
        assert (other - weights[0]).abs().max() < 1e-6


@pytest.mark.parametrize("compiled", ["--no_compile", "--compile"])
def test_a_killed_gpt_resumes_exactly(compiled, gpus, tmp_path):
    """With deterministic algorithms: without them, not even two undisturbed runs are equal."""
    text = tmp_path / "text.txt"
    text.write_text(texts.markov(5007))
    words = [*options(data=text), "--deterministic", compiled]
    once, killed = tmp_path / "once", tmp_path / "killed"
    once.mkdir()
    killed.mkdir()
    undisturbed = run("mingpt", *words, cwd=once, nproc=gpus, launcher=STANDALONE)
    assert undisturbed.status == 0, undisturbed.tail
    with Process("mingpt", *words, cwd=killed, nproc=gpus, launcher=STANDALONE) as it:
        it.wait_for(r"Step +10 \| train")
        os.kill(it.workers()[-1], signal.SIGKILL)
        assert it.wait() == 0, it.tail
    assert "Resuming after step 8" in it.out
    assert same(once / "mingpt.pt", killed / "mingpt.pt")


def test_the_doctor_diagnoses_on_the_cpu_beside_gpus(tmp_path):
    script = ["torchrun", "--standalone", "--nproc_per_node=2", ROOT / "multigpu_torchrun.py", 2, 1]
    words = [sys.executable, "-m", "ddp_doctor", "--cpu", 2, "--", *script]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "doctor")))
    ran = processes.run(words, cwd=tmp_path, env=environment(PYTHONPATH=path, OMP_NUM_THREADS="1"))
    assert ran.status == 0, ran.tail

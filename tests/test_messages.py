"""What a successful run prints: the device and why, and every epoch once, on whole lines."""

import io
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import utils
from tests.mistakes import ALONE, fake, python
from tests.processes import LESSONS, LIMIT, ROOT, SPINE, epochs, without_gloo

NO_GPU = "CUDA_VISIBLE_DEVICES is empty"  # tests/conftest.py empties it
STARTING = r"Starting 2 processes \(the variable NPROC sets how many\)"
EPOCH = r"Epoch [ \d]\d \| loss \d+\.\d{5} over \d+ samples \| [\d,]+ samples/s"
SAVED = r"Epoch [ \d]\d \| checkpoint saved to \S+\.pt"


@pytest.mark.quick
@pytest.mark.parametrize("lesson", SPINE)
def test_the_documented_run_says_the_device_then_each_epoch_and_each_save(lesson, trained):
    """Once, in order, on whole lines."""
    process = trained(lesson)
    assert (process.status, process.err) == (0, "")
    patterns = [NO_GPU + ": training on the CPU", *[STARTING] * (lesson == "multigpu")]
    for epoch in range(1, 51):
        patterns += [EPOCH] + [SAVED] * (epoch % 10 == 0)
    assert len(process.lines) == len(patterns), process.lines
    for line, pattern in zip(process.lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line
    assert epochs(process.lines) == list(range(1, 51))
    saved = [line for line in process.lines if "saved" in line]
    assert saved == [f"Epoch {n} | checkpoint saved to {lesson}.pt" for n in (10, 20, 30, 40, 50)]
    assert sorted(os.listdir(process.folder)) == [".tmp", f"{lesson}.pt"]


@pytest.mark.quick
def test_a_line_is_one_write(monkeypatch):
    """Otherwise the lines of two processes mix in the pipe."""
    written = []
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=written.append, flush=lambda: None))
    utils.report(0, torch.tensor([1.0, 2.0]), time.perf_counter())
    assert len(written) == 1 and re.fullmatch(EPOCH + "\n", written[0])


@pytest.mark.quick
def test_a_terminal_that_has_no_such_letter(monkeypatch):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    utils.show("2 × 3\n– é.pt")
    assert terminal.buffer.getvalue() == b"2 \\xd7 3\n\\u2013 \\xe9.pt\n"


REASONS = {
    "No GPU": {},
    "No collectives on mps": {"kind": "mps", "count": 1},
    "This torch is built for CUDA/ROCm 13 but finds no GPU (check the driver)": {"cuda": "13"},
    "CUDA_VISIBLE_DEVICES is 1,5, but torch finds no such GPU": {"cuda": "13"},
}


@pytest.mark.quick
@pytest.mark.parametrize("why", REASONS)
def test_one_process_says_why_the_cpu(why, tmp_path):
    """`fake` sets torch's answers about the machine, because none of these is at hand."""
    visible = {"CUDA_VISIBLE_DEVICES": "1,5"} if "1,5" in why else {}
    shown = "" if visible else "del os.environ['CUDA_VISIBLE_DEVICES']\n"
    env, before = ALONE | visible, shown + fake(**REASONS[why])
    process = python("multigpu_torchrun", 1, 1, cwd=tmp_path, env=env, before=before)
    assert (process.returncode, process.stderr) == (0, "")
    first, *others = without_gloo(process.stdout.splitlines())
    assert first == f"{why}: training on the CPU"
    assert len(others) == 2 and epochs(others) == [1]  # it trains on the CPU


@pytest.mark.quick
@pytest.mark.parametrize("lesson", ["multigpu", "multinode"])  # a manual of one line, the longest
def test_help_is_the_docstring(lesson, tmp_path):
    process = python(lesson, "--help", cwd=tmp_path)
    assert (process.returncode, process.stderr) == (0, "")
    said = " ".join(process.stdout.replace("\\\n", " ").split())  # however wide the terminal
    assert LESSONS[lesson].run in said
    assert "total_epochs default: 50 save_every epochs between saves; default: 10" in said
    assert "--batch_size BATCH_SIZE per process; default: 32" in said
    assert f"--checkpoint_path CHECKPOINT_PATH default: {lesson}.pt" in said
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("output", ["| head -n 1", "> /dev/full", ">&-"])
def test_output_that_cannot_be_written_stops_no_training(output, tmp_path):
    line = f"{sys.executable} {ROOT}/single_gpu.py 30 30 {output}; echo ${{PIPESTATUS[0]}} >&2"
    ran = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=LIMIT)
    assert ran.stderr.decode() == "0\n"
    assert torch.load(tmp_path / "single_gpu.pt")["epochs_run"] == 30

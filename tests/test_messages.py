"""What a run says when nothing is wrong: which device and why, every epoch once, on whole lines."""

import os
import re
import sys
import time
from types import SimpleNamespace

import pytest
import torch

import utils
from tests.mistakes import alone, check_each, fake, python
from tests.processes import LESSONS, epochs, losses, run

on_cpu = pytest.mark.skipif(utils._num_gpus() > 0, reason="says what it says without a GPU")

# The wheel that pip takes by default is built for CUDA, also on a machine without a GPU.
NO_GPU = r"(No GPU|This torch is built for CUDA/ROCm \S+ but finds no GPU \(check the driver\))"
EPOCH = r"Epoch [ \d]\d \| loss \d+\.\d{5} over \d+ samples \| [\d,]+ samples/s"
SAVED = r"Epoch [ \d]\d \| checkpoint saved to \S+\.pt"


@pytest.fixture(autouse=True)
def gpus_as_they_are(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def check_lines(process, announcement, total_epochs, starts=False):
    """One line about the device, then each epoch and each save: once, in order, on whole lines.

    `starts`: scripts that may resume say first that they do not.
    """
    assert (process.status, process.err) == (0, "")
    assert re.fullmatch(announcement, process.lines[0]), process.lines[0]
    patterns = [r"Starting, \d+ samples a step"] * starts + [EPOCH, SAVED] * total_epochs
    assert len(process.lines) == 1 + len(patterns), process.out
    for line, pattern in zip(process.lines[1:], patterns, strict=True):
        assert re.fullmatch(pattern, line), line
    assert epochs(process.lines) == list(range(1, total_epochs + 1))


def test_a_line_is_one_write(monkeypatch):
    """Else the lines of two processes mix, where nothing between them and the pipe collects."""
    written = []
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=written.append, flush=lambda: None))
    utils.report(0, torch.tensor([1.0, 2.0]), time.perf_counter())
    assert len(written) == 1 and re.fullmatch(EPOCH + "\n", written[0])


@on_cpu
def test_three_processes_if_NPROC_says_so(tmp_path):
    process = run("multigpu", 2, 1, cwd=tmp_path, nproc=3)
    more = r"\(NPROC=6 in the environment asks for more\)"
    check_lines(process, f"{NO_GPU}: 3 CPU processes over gloo {more}", 2)
    # 2,048 is no multiple of 3: the sampler repeats a sample, and the line says what it counted.
    assert [samples for _, samples in losses(process.lines)] == [2049, 2049]
    assert sorted(os.listdir(tmp_path)) == [".tmp", "multigpu.pt"]


def test_four_workers_of_torchrun_say_it_once(tmp_path):
    empty = {"CUDA_VISIBLE_DEVICES": ""}
    process = run("multigpu_torchrun", 4, 1, cwd=tmp_path, nproc=4, env=empty)
    announcement = (
        r"CUDA_VISIBLE_DEVICES is empty: 4 CPU processes over gloo "
        r"\(--nproc_per_node=8 asks for more\)"
    )
    check_lines(process, announcement, 4, starts=True)
    assert {samples for _, samples in losses(process.lines)} == {2048}
    assert sorted(os.listdir(tmp_path)) == [".tmp", "multigpu_torchrun.pt"]


REASONS = {
    "single_gpu": ({}, "No GPU"),
    "multinode": ({"kind": "mps", "count": 1}, "No collectives on mps"),
    "multigpu_torchrun": (
        {"cuda": "13"},
        "This torch is built for CUDA/ROCm 13 but finds no GPU (check the driver)",
    ),
}


def test_one_process_says_why_the_cpu(tmp_path):
    """Pretended are torch's answers about the machine, see `fake`: none of these is at hand."""

    def check(lesson):
        pretended, why = REASONS[lesson]
        program = fake(**pretended)
        process = python(lesson, 1, 1, cwd=tmp_path, env=alone(lesson), program=program)
        assert (process.returncode, process.stderr) == (0, "")
        more = "" if lesson == "single_gpu" else " (--nproc_per_node=2 asks for more)"
        first, *others = process.stdout.splitlines()
        assert first == f"{why}: one CPU process{more}"
        if lesson != "single_gpu":  # these may resume, and say that they do not
            assert others.pop(0) == "Starting, 32 samples a step"
        assert len(others) == 2 and epochs(others) == [1]  # and on the CPU it trains

    check_each(check, REASONS)


def test_help_is_the_docstring(tmp_path):
    def check(lesson):
        process = python(lesson, "--help", cwd=tmp_path)
        assert (process.returncode, process.stderr) == (0, "")
        said = " ".join(process.stdout.replace("\\\n", " ").split())  # however wide the terminal
        assert LESSONS[lesson].run in said
        assert "total_epochs default: 50 save_every epochs between saves; default: 10" in said
        assert "--batch_size BATCH_SIZE per process; default: 32" in said
        assert f"--checkpoint_path CHECKPOINT_PATH default: {lesson}.pt" in said

    check_each(check, ["multigpu", "multinode"])  # a manual of one line, and the longest
    assert os.listdir(tmp_path) == []

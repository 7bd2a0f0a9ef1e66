"""A process group of one process, and options for a training of one second."""

import contextlib
import subprocess
import sys

import pytest
import torch.distributed as dist

from mingpt.config import Config
from tests.mingpt import texts
from tests.processes import LIMIT, ROOT, environment

with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401  to compile imports it, which fails once distutils is there

TINY = {
    "model": "gpt-nano", "block_size": 16, "batch_size": 8, "total_steps": 24, "warmup_steps": 4,
    "learning_rate": 2e-3, "eval_every": 8, "save_every": 8, "log_every": 1, "val_tokens": 0,
    "dropout": 0.1,
}  # fmt: skip


def options(**others):
    """TINY with `others` as words of a command line."""
    return [word for name, value in {**TINY, **others}.items() for word in (f"--{name}", value)]


def python(module, *words, cwd, **variables):
    """`python -m mingpt.MODULE WORDS`, to its end: without torchrun, and on the CPU."""
    variables = {"PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", f"mingpt.{module}", *map(str, words)], cwd=cwd, timeout=LIMIT,
        env=environment(OMP_NUM_THREADS="1", **variables), capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    """The path of a text whose validation part is no multiple of a window or a batch."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(texts.markov(5007))
    return path


@pytest.fixture
def config(text, tmp_path):
    """Make a Config: TINY, with all its files in the test's own folder."""

    def make(**others):
        where = {"cache": str(tmp_path / "data"), "checkpoint_path": str(tmp_path / "mingpt.pt")}
        return Config(**{**TINY, "data": str(text), "precision": "fp32", **where, **others})

    return make


@pytest.fixture
def group(monkeypatch):
    """Make this process a process group."""
    monkeypatch.setenv("LOCAL_RANK", "0")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()

"""Fixtures of all tests."""

import platform
import time

import pytest

from tests.processes import ROOT


@pytest.fixture
def note():
    """Keep a figure of a long run: printed, and appended to tools/bench/results/soak.txt."""

    def write(text):
        import torch

        line = (
            f"{time.strftime('%Y-%m-%d')}  torch {torch.__version__}, Python "
            f"{platform.python_version()}, {platform.system()}:  {text}"
        )
        print(line)
        results = ROOT / "tools" / "bench" / "results"
        results.mkdir(exist_ok=True)
        with open(results / "soak.txt", "a") as file:
            file.write(line + "\n")

    return write

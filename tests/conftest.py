"""Fixtures of all tests."""

import platform
import time

import pytest

from tests.processes import ROOT

AGAIN = ("test_symptoms", "test_theory")  # what `make docs` runs too, and more of it
OF_THE_SITE = ("test_pages", "test_readme", *AGAIN)


def pytest_ignore_collect(collection_path, config):
    """What the pages are made of is tested with them: `pytest -m site`, after `make docs`."""
    if "not site" in config.option.markexpr and collection_path.stem.startswith(OF_THE_SITE):
        return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem.startswith(OF_THE_SITE):
            item.add_marker("site")
        if item.path.stem in AGAIN:
            item.add_marker("soak")


@pytest.fixture(scope="session", autouse=True)
def folder_of_all(tmp_path_factory):
    """Made now: two threads of a fixture that both come first would both make it, and one fails."""
    tmp_path_factory.getbasetemp()


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

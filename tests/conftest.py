"""Fixtures of all tests, and which of them `make test` runs."""

import fcntl
import json
import os
import platform
import shutil
import time
from types import SimpleNamespace

import pytest

from tests.faults import kept_saves
from tests.processes import ROOT, run

# Every machine runs the tests on its CPU: what they start finds no GPU. tests/test_gpu.py shows the
# GPUs again, with `VISIBLE`.
os.environ.setdefault("VISIBLE", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""

OF_THE_SITE = ("test_pages", "test_readme", "test_symptoms")
# `make test` runs the tests marked `quick`, and these from the folders.
QUICK = (
    "tests/mingpt/test_trainer.py::test_each_rank_drops_other_units",  # in a few steps of training
    "tests/series/",
    "tests/workshop/test_verdicts.py::test_recorded_facts_get_their_verdict[multi",
)


def pytest_ignore_collect(collection_path, config):
    """Leave the pages' own tests to `pytest -m site`, after `make docs`."""
    without_site = config.option.markexpr == "quick" or "not site" in config.option.markexpr
    return (without_site and collection_path.stem.startswith(OF_THE_SITE)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem.startswith(OF_THE_SITE):
            item.add_marker("site")
        if item.nodeid.startswith(QUICK):
            item.add_marker("quick")


@pytest.fixture(scope="session", autouse=True)
def folder_of_all(tmp_path_factory):
    """Make the folder now. Two threads of a fixture would both make it, and one would fail."""
    return tmp_path_factory.getbasetemp()


@pytest.fixture(scope="session")
def trained(folder_of_all):
    """`trained(lesson, ...)`: an undisturbed training, run once for all tests.

    Both processes of pytest share it. Without arguments it is the documented one: 50 epochs, a save
    every 10. The result has the `status`, `err` and `lines` of a finished `Process`, its `folder`,
    and `saves`: a file per save, in order. Only read these files.
    """
    shared = folder_of_all.parent if "PYTEST_XDIST_WORKER" in os.environ else folder_of_all

    def train(lesson, *args, nproc=2):
        args = args or (50, 10)
        name = "-".join(map(str, ("trained", lesson, *args, nproc)))
        about, saves, folder = (shared / name / part for part in ("about.json", "saves", "work"))
        with open(shared / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not about.exists():
                shutil.rmtree(shared / name, ignore_errors=True)  # of an unfinished training
                folder.mkdir(parents=True)
                ran = run(lesson, *args, cwd=folder, nproc=nproc, env=kept_saves(saves))
                facts = {"status": ran.status, "err": ran.err, "lines": ran.lines}
                about.write_text(json.dumps(facts))
        count = len(list(saves.glob("*.pt")))
        return SimpleNamespace(
            **json.loads(about.read_text()),
            folder=folder,
            saves=[saves / f"{number}.pt" for number in range(1, count + 1)],
        )

    return train


@pytest.fixture
def note():
    """Record a number of a long run: print it, and append it to tools/bench/results/soak.txt."""

    def write(text):
        import torch

        line = (
            f"{time.strftime('%Y-%m-%d')}  torch {torch.__version__}, Python "
            f"{platform.python_version()}, {platform.system()}:  {text}"
        )
        print(line)
        with open(ROOT / "tools" / "bench" / "results" / "soak.txt", "a") as file:
            file.write(line + "\n")

    return write

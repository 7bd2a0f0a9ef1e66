"""Clusters made of namespaces. Without root, pytest skips these tests by name."""

import os
import shutil
import sys
from contextlib import ExitStack

import pytest

from tests.cluster.jobs import SHORT
from tests.cluster.training import ARGS, Training
from tests.processes import ROOT
from tools.cluster import Cluster

POSSIBLE = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("ip")


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """More than a hundred processes import torch: make that fast, except when we measure times."""
    with pytest.MonkeyPatch.context() as patch:
        if "CLUSTER_RECORD" not in os.environ:
            patch.setenv("PYTHONPATH", str(ROOT / "tools" / "quick"), prepend=os.pathsep)
        yield


@pytest.fixture
def cluster():
    """Makes clusters of a given size, and takes them down."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    with ExitStack() as stack:
        yield lambda size: stack.enter_context(Cluster(size))


@pytest.fixture(scope="session")
def one_node(trained):
    """The checkpoint of one node with four processes, trained with the arguments SHORT."""
    return trained("multinode", *SHORT[1:], nproc=4).folder / "multinode.pt"


@pytest.fixture(scope="session")
def undisturbed(trained):
    """The checkpoint of an undisturbed training."""
    return trained("multinode", *ARGS[1:]).folder / "multinode.pt"


@pytest.fixture
def training(cluster):
    return Training(cluster(2))

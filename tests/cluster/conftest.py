"""Clusters made of namespaces; without root they are skipped, by name."""

import os
import shutil
import sys
from contextlib import ExitStack

import pytest
from filelock import FileLock

from tests.cluster.jobs import SHORT
from tests.cluster.training import ARGS, Training
from tests.processes import ROOT, STANDALONE, Process
from tools.cluster import Cluster

POSSIBLE = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("ip")


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """All that is started imports torch: more than a hundred times. Not where time is measured."""
    with pytest.MonkeyPatch.context() as patch:
        if "CLUSTER_RECORD" not in os.environ:
            patch.setenv("PYTHONPATH", str(ROOT / "tools" / "quick"), prepend=os.pathsep)
        yield


@pytest.fixture
def cluster():
    """Makes clusters of a size; all are taken down."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    with ExitStack() as stack:
        yield lambda size: stack.enter_context(Cluster(size))


def train_once(factory, name, args, nproc):
    """The checkpoint of a run on one node, trained once for all processes of the tests."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(shared / f"{name}.lock"):
        if not (shared / name).exists():
            folder = factory.mktemp(name)
            with Process(
                "multinode", *args[1:], cwd=folder, nproc=nproc, launcher=STANDALONE
            ) as process:
                assert process.wait() == 0, process.tail
            folder.rename(shared / name)  # only a run that has ended well
    return shared / name / "multinode.pt"


@pytest.fixture(scope="session")
def one_node(tmp_path_factory):
    """One node with four processes, after the arguments SHORT."""
    return train_once(tmp_path_factory, "one-node", SHORT, 4)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """The training that nobody disturbs."""
    return train_once(tmp_path_factory, "undisturbed", ARGS, 2)


@pytest.fixture
def training(cluster):
    return Training(cluster(2))

"""Clusters made of namespaces; without root they are skipped, by name."""

import os
import shutil
import sys
import uuid

import pytest

from tests.cluster.jobs import SHORT
from tests.cluster.training import ARGS, Training
from tests.processes import STANDALONE, Process
from tools.cluster import Cluster

POSSIBLE = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("ip")


def named(size):
    """A cluster, to be started, whose name no other run of the tests has."""
    return Cluster(size, f"test-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def cluster():
    """Makes clusters of a size; all are taken down."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    made = []

    def make(size):
        made.append(named(size))
        return made[-1].up()

    yield make
    for one in made:
        one.down()


@pytest.fixture(scope="module")
def one_node(tmp_path_factory):
    """The checkpoint of one node with four processes, after the arguments SHORT."""
    folder = tmp_path_factory.mktemp("one-node")
    with Process("multinode", *SHORT[1:], cwd=folder, nproc=4, launcher=STANDALONE) as process:
        assert process.wait() == 0, process.tail
    return folder / "multinode.pt"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The checkpoint of the training that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Process("multinode", *ARGS[1:], cwd=folder, launcher=STANDALONE) as process:
        assert process.wait() == 0, process.tail
    return folder / "multinode.pt"


@pytest.fixture
def training(cluster):
    return Training(cluster(2))

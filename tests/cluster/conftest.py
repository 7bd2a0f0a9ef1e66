"""Clusters made of namespaces; without root they are skipped, by name."""

import os
import shutil
import sys
import uuid

import pytest

from tools.cluster import Cluster

POSSIBLE = sys.platform.startswith("linux") and os.geteuid() == 0 and shutil.which("ip")


@pytest.fixture
def cluster():
    """Makes clusters of a size; all are taken down."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    made = []

    def make(size):
        made.append(Cluster(size, f"test-{uuid.uuid4().hex[:8]}"))
        return made[-1].up()

    yield make
    for one in made:
        one.down()

"""Nodes killed at random moments, each replaced by an empty one: every run ends bit for bit like an
undisturbed one."""

import os
import random

import pytest

from tests.cluster.conftest import POSSIBLE, undisturbed  # noqa: F401  (a fixture)
from tests.cluster.training import SAVE_EVERY, Training, repeated
from tools.cluster import Cluster

ROUNDS = int(os.environ.get("SOAK_ROUNDS", 20))

pytestmark = pytest.mark.soak


@pytest.mark.skipif(not POSSIBLE, reason="nodes are namespaces: Linux, root, iproute2 are needed")
def test_a_node_dies_at_any_moment(undisturbed, note):  # noqa: F811
    worst = 0
    for number in range(ROUNDS):
        with Cluster(2) as nodes:
            training = Training(nodes).start()
            clock = training["node1"]
            clock.wait_for(rf"Epoch +{random.Random(number).randrange(6, 55)} \| loss")
            moment = clock.now
            nodes.kill("node2")
            training.replace("node2")
            clock.wait_for("Resuming after epoch", moment)
            training.ends_like(undisturbed)
            worst = max(worst, repeated(clock))
    assert worst <= SAVE_EVERY
    note(f"{ROUNDS} nodes killed and replaced: all ends equal, at most {worst} epochs repeated")

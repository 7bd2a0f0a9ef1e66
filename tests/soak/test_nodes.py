"""Twenty nodes killed at random moments, each replaced by an empty one: twenty equal ends."""

import random

import pytest

from tests.cluster.conftest import cluster, undisturbed  # noqa: F401  (fixtures)
from tests.cluster.training import SAVE_EVERY, Training, repeated

ROUNDS = 20


@pytest.mark.soak
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_node_dies_at_any_moment(number, cluster, undisturbed):  # noqa: F811
    draw = random.Random(number)
    training = Training(cluster(2)).start()
    clock = training["node1"]
    training.reach(1)
    clock.wait_for(rf"Epoch +{draw.randrange(6, 55)} \| loss")
    moment = clock.now
    training.nodes.kill("node2")
    training.replace("node2")
    clock.wait_for("Resuming after epoch", moment)
    training.ends_like(undisturbed)
    assert repeated(clock) <= SAVE_EVERY

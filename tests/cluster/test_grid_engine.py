"""Grid Engine runs the same file on nodes, and grants what the lines in its recipe ask for."""

import sys

import pytest

from tests.cluster.jobs import SHORT, close, documented, facts, missing, ran
from tools.cluster import Cluster, gridengine


@pytest.fixture(scope="module")
def with_grid_engine():
    with Cluster(2) as nodes:
        gridengine.start(nodes)
        yield nodes


def qsub(folder, *words):
    """The documented command, with these options; its output goes to a file."""
    here = ["sh", "-c", 'cd "$0" && exec "$@"', folder]
    first, *options = documented("gridengine.sh", "qsub")
    return [*here, first, "-j", "y", "-o", folder / "job.txt", *words, *options[:-3]]


@missing(gridengine.PROGRAMS)
def test_grid_engine(with_grid_engine, shared, one_node):
    ran(with_grid_engine, [*qsub(shared, "-sync", "y"), *SHORT], VIRTUAL_ENV=sys.prefix)
    assert (shared / "job.txt").read_text().count("Epoch  4 | loss") == 1
    assert close(shared / "multinode.pt", one_node)


@missing(gridengine.PROGRAMS)
@pytest.mark.parametrize("environment", ["venv", "conda"])
def test_grid_engine_grants_the_optional_lines(environment, with_grid_engine, shared, switched_on):
    switched_on("gridengine.sh", environment)
    words = [word for word in qsub(shared, "-sync", "y") if word != "-V"]
    ran(with_grid_engine, [*words, "facts.py"])
    said = (shared / "job.txt").read_text()
    memory = str(gridengine.SLOTS * 16 * 2**30)  # h_vmem is per slot, the limit per process
    assert facts(said) == [(str(rank), "4", environment, memory) for rank in range(4)], said

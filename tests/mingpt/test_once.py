"""What one process does for the others. Every rank gets its result, or its error."""

import platform
import sys
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from guard import UserError
from mingpt import data
from mingpt.config import Config
from mingpt.once import run_on_main, run_once_per_node
from tests.worlds import world


@pytest.fixture
def nodes(monkeypatch):
    """`nodes("ABBA")`: the name of each rank's node."""
    return lambda names: monkeypatch.setattr(platform, "node", lambda: names[dist.get_rank()])


def fail(at):
    if dist.get_rank() == at:
        raise ValueError(f"no text at {at}")


def hold():
    error = ValueError("has a file")
    error.file = sys.stdout  # no pickle can send it
    raise error


def test_result_and_error_reach_every_rank_however_long_it_takes(nodes):
    nodes("ABBA")  # launchers number ranks in different orders

    def slow():
        time.sleep(5 if dist.get_rank() == 0 else 0)
        return dist.get_rank()

    def error(run, *args):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            run(*args)
        return str(caught.value)

    def work(rank):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=3))  # of other collectives
        results = run_once_per_node(slow), run_on_main(slow)
        failed = error(run_once_per_node, fail, 2), error(run_on_main, fail, 0)
        return *results, *failed, error(run_on_main, hold)

    errors = "no text at 2", "no text at 0", "ValueError('has a file')"
    assert world(4, work, nodes=2) == [(of_node, 0, *errors) for of_node in (0, 2, 2, 0)]


def test_nodes_with_different_texts(nodes, tmp_path):
    nodes("AB")

    def load(rank):
        path = tmp_path / f"{rank}.txt"
        path.write_text("a text of many letters " * (20 + rank))
        with pytest.raises(UserError, match=r"^rank 1 has another text than rank 0: give all .*"):
            data.load(Config(data=str(path), cache=str(tmp_path / str(rank))))

    world(2, load, nodes=2)

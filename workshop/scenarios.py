"""How a check runs a script of each lesson: short, on two CPU processes."""

import sys

from .observe import Act, Start

EPOCH = 1024  # samples of each of two processes


def acts(lesson: str, file: str) -> list[Act]:
    """The acts for `file`, a script of the lesson."""
    return _SCENARIOS[lesson](file)


def _multigpu(file):
    start = Start([sys.executable, file, "3", "2"], {"NPROC": "2"})
    return [Act([start], {"processes": 2, "total_epochs": 3, "save_every": 2})]


def _multigpu_torchrun(file):
    """Rank 1 fails in epoch 4, after a save at epoch 2; torchrun restarts both ranks."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "--max-restarts=1", file, "5", "2"]
    fault = {"rank": 1, "samples": 3 * EPOCH + 320}
    asked = {"processes": 2, "total_epochs": 5, "save_every": 2}
    return [Act([Start(words)], asked, fault)]


def _multinode(file):
    """First two processes on node2. Then one per node: node1, with an empty disk, has rank 0.

    Each process gets its ranks in the environment, as from a scheduler.
    """

    def start(total, node, rank, local):
        env = {
            "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}",
        }  # fmt: skip
        return Start([sys.executable, file, str(total), "2"], env, node)

    asked = {"processes": 2, "total_epochs": 3, "save_every": 2, "nodes": ["node2"]}
    again = asked | {"total_epochs": 5, "nodes": ["node1", "node2"]}
    return [
        Act([start(3, "node2", rank, rank) for rank in range(2)], asked),
        Act([start(5, node, rank, 0) for rank, node in enumerate(again["nodes"])], again),
    ]


_SCENARIOS = {
    "multigpu": _multigpu, "multigpu_torchrun": _multigpu_torchrun, "multinode": _multinode,
}  # fmt: skip
LESSONS = tuple(_SCENARIOS)

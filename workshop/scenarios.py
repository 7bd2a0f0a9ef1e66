"""How a script of each lesson is run to be judged: short, on two CPU processes."""

import sys

from .observe import Act, Start

EPOCH = 1024  # samples of each of two processes


def acts(lesson: str, file: str) -> list[Act]:
    """The acts for the lesson's script, whose file is called `file`."""
    return _SCENARIOS[lesson](file)


def _multigpu(file):
    start = Start([sys.executable, file, "3", "2"], {"NPROC": "2"})
    return [Act([start], {"processes": 2, "total_epochs": 3, "save_every": 2})]


def _multigpu_torchrun(file):
    """The worker of rank 1 fails in epoch 4, when 2 are saved; torchrun starts both again."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "--max-restarts=1", file, "5", "2"]
    fault = {"rank": 1, "samples": 3 * EPOCH + 320}
    asked = {"processes": 2, "total_epochs": 5, "save_every": 2}
    return [Act([Start(words)], asked, fault)]


def _multinode(file):
    """Two processes of node1. Then one of it, and as rank 0 one of node0, whose disk is empty.

    Started as a scheduler does: processes with their ranks in the environment.
    """

    def start(total, node, rank, local):
        env = {
            "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}",
        }  # fmt: skip
        return Start([sys.executable, file, str(total), "2"], env, node)

    asked = {"processes": 2, "total_epochs": 3, "save_every": 2, "nodes": ["node1"]}
    again = asked | {"total_epochs": 5, "nodes": ["node0", "node1"]}
    return [
        Act([start(3, "node1", rank, rank) for rank in range(2)], asked),
        Act([start(5, node, rank, 0) for rank, node in enumerate(again["nodes"])], again),
    ]


_SCENARIOS = {
    "multigpu": _multigpu, "multigpu_torchrun": _multigpu_torchrun, "multinode": _multinode,
}  # fmt: skip
LESSONS = tuple(_SCENARIOS)

"""How a script of each lesson is run to be judged: short, on two CPU processes."""

import sys

from .observe import Act, Start

EPOCH = 32  # steps: 2,048 samples by 2 processes by 32 a batch


def acts(lesson: str, file: str) -> list[Act]:
    """The acts for the lesson's script, whose file is called `file`."""
    return _SCENARIOS[lesson](file)


def _multigpu(file):
    start = Start([sys.executable, file, "3", "2"], {"NPROC": "2"})
    return [Act([start], {"processes": 2, "total_epochs": 3, "save_every": 2})]


def _multigpu_torchrun(file):
    """The worker of rank 1 fails in epoch 4, when 2 are saved; torchrun starts both again."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "--max-restarts=1", file, "5", "2"]
    fault = {"rank": 1, "step": 3 * EPOCH + 10}
    asked = {"processes": 2, "total_epochs": 5, "save_every": 2, "fault": fault}
    return [Act([Start(words)], asked, fault)]


def _multinode(file):
    """Two nodes of one process; then node0 comes back with an empty disk, to train on.

    Started as a scheduler does: a process with its rank in the environment.
    """

    def starts(total):
        return [
            Start([sys.executable, file, str(total), "2"], _ranks(rank), f"node{rank}")
            for rank in range(2)
        ]

    asked = {"processes": 2, "total_epochs": 3, "save_every": 2, "nodes": ["node0", "node1"]}
    return [
        Act(starts(3), asked),
        Act(starts(5), asked | {"total_epochs": 5}, lose=("node0",)),
    ]


def _ranks(rank):
    return {
        "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}",
    }  # fmt: skip


_SCENARIOS = {
    "multigpu": _multigpu, "multigpu_torchrun": _multigpu_torchrun, "multinode": _multinode,
}  # fmt: skip
LESSONS = tuple(_SCENARIOS)

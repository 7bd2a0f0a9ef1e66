"""How a check runs a script of each lesson, and judges it: short, on two CPU processes."""

import sys
from pathlib import Path

from .checks import WITH_THREE
from .facts import Run
from .judge import Check, Finding, judge, passed
from .observe import LIMIT, Act, Start, observe

EPOCH = 1024  # samples of each of two processes
RAGGED = "--batch_size=48"  # so each epoch's last batch is smaller


def examine(
    lesson: str, file: str, files: list[Path], checks: list[Check], limit: float = LIMIT
) -> tuple[Run, list[Finding]]:
    """Run `file`, a script of the lesson, with `files` in its folder, and judge it.

    If a script of multigpu passes, it runs again with three processes, and one of them fails.
    """
    seen = observe(files, _SCENARIOS.get(lesson, _beyond)(file), limit)
    findings = judge(seen, checks)
    if lesson == "multigpu" and passed(findings):
        failing = observe(files, _multigpu(file, 3, {"rank": 1, "samples": EPOCH}), limit)
        findings += judge(failing, WITH_THREE)
        seen = seen if passed(findings) else failing
    return seen, findings


def _multigpu(file, processes=2, fault=None):
    start = Start([sys.executable, file, "3", "2", RAGGED], {"NPROC": str(processes)})
    return [Act([start], {"processes": processes, "total_epochs": 3, "save_every": 2}, fault)]


def _multigpu_torchrun(file):
    """Rank 1 fails in epoch 4, after a save at epoch 2; torchrun restarts both ranks."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "--max-restarts=1", file, "5", "2"]
    words += [RAGGED]
    fault = {"rank": 1, "samples": 3 * EPOCH + 320}
    asked = {"processes": 2, "total_epochs": 5, "save_every": 2}
    return [Act([Start(words)], asked, fault)]


def _multinode(file, processes=2):
    """First all processes on node2. Then one per node: node1, with an empty disk, has rank 0.

    Each process gets its ranks in the environment, as from a scheduler.
    """

    def start(total, node, rank, local, of, size):
        env = {
            "RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(of), "GROUP_RANK": str(rank - local),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}",
        }  # fmt: skip
        return Start([sys.executable, file, str(total), "2", RAGGED], env, node)

    asked = {"processes": processes, "total_epochs": 3, "save_every": 2, "nodes": ["node2"]}
    again = asked | {"total_epochs": 5, "nodes": ["node1", "node2"]}
    return [
        Act([start(3, "node2", r, r, processes, processes) for r in range(processes)], asked),
        Act([start(5, node, r, 0, 1, 2) for r, node in enumerate(again["nodes"])], again),
    ]


def _beyond(file):
    """Four processes, since a script may be right for two alone."""
    return _multinode(file, 4)


_SCENARIOS = {
    "multigpu": _multigpu, "multigpu_torchrun": _multigpu_torchrun, "multinode": _multinode,
}  # fmt: skip

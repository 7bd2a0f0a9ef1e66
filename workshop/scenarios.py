"""What a check runs of each lesson: short, on two CPU processes or a few more."""

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from .acts import Act, Start, last, observe
from .by_epoch import Run
from .checks import AFTER_A_RESTART, IN_EACH_RUN, WITH_THREE
from .checks.after_restart import from_the_newest, resumes_when_started_again
from .exercises import ROOT, Exercise
from .folder import Folder
from .verdicts import Finding, first_failure, judge

EPOCH = 1024  # samples of each of two processes
BATCH = 48  # so each epoch's last batch is smaller
GPT = "--model gpt-nano --block_size 16 --total_steps 12 --save_every 4 --log_every 4"
RAGGED = f"--batch_size={BATCH}"


def examine(
    exercise: Exercise,
    files: list[Path],
    play: Callable[..., Iterator[Run]] = observe,
    proven: int = 0,
) -> tuple[Run, list[Finding]]:
    """Play the script of an exercise, the first of `files`, and judge it.

    A script of multigpu that has made more steps than `proven` runs again with three processes,
    since it may be right for two alone; if it passes, one of them fails. The GPT's script is
    compared with the solution.
    """
    lesson, file = exercise.lesson.name, files[0].name
    if exercise.runs:
        return _beside_the_lesson(exercise, files, play)
    seen = last(play(files, _SCENARIOS.get(lesson, _beyond)(file)))
    findings = judge(seen, exercise.checks)
    whole, held = not first_failure(findings), {finding.check for finding in findings if finding.ok}
    if lesson == "multigpu" and (whole or exercise.reached(findings) > proven):
        acts = _multigpu(file, 3, 1, {"rank": 1, "samples": EPOCH} if whole else None)
        checks = [one for one in WITH_THREE if whole or one in held]
    elif lesson == "multigpu_torchrun" and whole:
        acts = _multigpu_torchrun(file, 3)
        checks = [*(one for one in WITH_THREE if one in held), resumes_when_started_again]
    elif lesson == "multinode" and whole:
        acts, checks = _two_checkpoints(file), [from_the_newest]
    else:
        return seen, findings
    again = last(play(files, acts))
    more = judge(again, checks)
    shown = first_failure(more + findings)
    return (again, more + findings) if shown in more else (seen, findings + more)


def _act(start, processes, total, save_every=2, fault=None):
    asked = {"processes": processes, "total_epochs": total, "save_every": save_every}
    return Act(start, asked | {"batch_size": BATCH}, fault)


def _multigpu(file, processes=2, save_every=2, fault=None):
    start = Start([sys.executable, file, "3", str(save_every), RAGGED], {"NPROC": str(processes)})
    return [_act([start], processes, 3, save_every, fault)]


def _multigpu_torchrun(file, processes=2):
    """Rank 1 fails in epoch 4, after a save at epoch 2; torchrun restarts all ranks.

    Three processes then run again, for one epoch more.
    """
    words = ["torchrun", "--standalone", f"--nproc_per_node={processes}", "--max-restarts=1"]
    fault = {"rank": 1, "samples": (3 * EPOCH + 320) * 2 // processes}

    def act(total, fault=None):
        return _act([Start([*words, file, str(total), "2", RAGGED])], processes, total, fault=fault)

    return [act(5, fault), *[act(6)] * (processes > 2)]


def _multinode(file, nodes=("node2", "node2")):
    """First a process on each of `nodes`. Then one per node: only that in the middle has a file."""
    return [_on_nodes(file, 3, nodes), _on_nodes(file, 5, ("node1", "node2", "node4"))]


def _two_checkpoints(file):
    """Two nodes that have trained alone, the first later and for fewer epochs, and then both."""
    alone = [_on_nodes(file, 3, ("node2",)), _on_nodes(file, 1, ("node1",))]
    return [*alone, _on_nodes(file, 5, ("node1", "node2"))]


def _on_nodes(file, total, nodes):
    starts = _processes([file, str(total), "2", RAGGED], nodes)
    return _act([*starts], len(nodes), total)


def _processes(words, nodes):
    """A process on each of `nodes`, with its ranks in the environment, as from a scheduler."""
    for rank, node in enumerate(nodes):
        ranks = {
            "RANK": rank, "LOCAL_RANK": nodes[:rank].count(node), "WORLD_SIZE": len(nodes),
            "LOCAL_WORLD_SIZE": nodes.count(node), "GROUP_RANK": sorted({*nodes}).index(node),
            "GROUP_WORLD_SIZE": len({*nodes}),
        }  # fmt: skip
        env = {name: str(value) for name, value in ranks.items()}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}"}
        yield Start([sys.executable, *words], env, node)


def _beside_the_lesson(exercise, files, play):
    """Play the acts, and at the same time those of the solution.

    The first act of a path shows all its steps but one about a restart, and is what is shown. If it
    has not made them, or has a mistake, the others are not played.
    """
    acts, stop = _package(exercise), threading.Event()
    mine, theirs = play(files, acts), _reference(exercise, acts, play, stop)
    restart, each = ({check.name for check in some} for some in (AFTER_A_RESTART, IN_EACH_RUN))
    due = [step for step in exercise.steps if step.check not in restart]
    with closing(mine), closing(theirs), ThreadPoolExecutor(1) as pool, ExitStack() as at_end:
        at_end.callback(stop.set)
        seen, findings, later = None, [], exercise.checks
        for _ in acts:
            beside = pool.submit(next, theirs, None)
            if (run := next(mine, None)) is None:
                break
            run.reference = beside.result()
            findings = [one for one in findings if one.check not in later] + judge(run, later)
            seen = seen if seen and exercise.steps else run
            if exercise.steps:
                wrong = any(one.ok is False for one in findings)
                if wrong or exercise.reached(findings) < len(due):
                    break
                later = [one for one in later if one.name in each]
    return seen, findings


def _package(exercise):
    """The runs of an exercise, one after the other, which share the folders of their nodes.

    Each is written `PLACES: OPTIONS`: the number of processes on this machine, or nodes of two.
    """
    lesson, acts = exercise.lesson, []
    module = "mingpt.main" if lesson.name == "mingpt" else lesson.file[:-3].replace("/", ".")
    is_gpt = "from mingpt import" in exercise.solution
    trained = ["--data", str(ROOT / "LICENSE"), *GPT.split()] if is_gpt else []
    for run in exercise.runs:
        places, _, options = run.rpartition(": ")
        number = places or "2"
        words = ["-m", module, *trained, *options.split()]
        if number.isdecimal():
            alone = ["torchrun", "--standalone", f"--nproc_per_node={number}", *words]
            processes, starts = int(number), [Start(alone)]
        else:
            nodes = [node for node in places.split() for _ in range(2)]
            processes, starts = len(nodes), [*_processes(words, nodes)]
        acts.append(Act(starts, {"processes": processes, "options": options}))
    return acts


def _reference(exercise, acts, play, stop):
    """What the solution does, until `stop` is set."""

    def tell():
        if stop.is_set():
            raise InterruptedError

    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name))
        folder.start(replace(exercise, start=exercise.solution))
        yield from play(folder.files(exercise), acts, tell=tell)


# A script of beyond/ may be right for two processes or for one node alone.
_beyond = partial(_multinode, nodes=("node2", "node2", "node3", "node3"))
_SCENARIOS = {
    "multigpu": _multigpu, "multigpu_torchrun": _multigpu_torchrun, "multinode": _multinode,
    "zero": partial(_multinode, nodes=("node2",) * 4),  # which divide the optimizer's state
}  # fmt: skip

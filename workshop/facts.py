"""What a run did, by attempt, rank, epoch and step: a view of the probe's facts.

A fact is a JSON object with `kind`, `t` (seconds of a clock that all processes share) and `pid`:

    process     a Python began: parent, argv, node, attempt, torchrun; its rank ... in os.environ
    device      utils.set_device was called: index
    bound       a socket was bound to a port: 0 lets the system choose one
    joining, joined   init_process_group began: port; returned: rank, world_size, backend
    collective, done  what ("DDP": its constructor), bytes passed, where the script called it
    loader      an iteration over a DataLoader began
    batch       a model's input: samples (indices; -1 for a sample that is not in the dataset),
                through (the class called), grad, loss (the mean that the lessons would compute)
    backward    a backward pass began
    first, step       fingerprints of each parameter and tensor of the optimizer's state, before the
                first step and after each step
    gradient    of a step: sizes of its batches; all numbers: used (by the optimizer), expected (of
                this rank's samples, computed by the probe; None for another model's)
    said        a line on stdout
    saved       path (None: to memory) and outline of a checkpoint; together: by all ranks; thread:
                not the main one wrote
    opened, removed   a file to write to: path
    renamed     source, path, synced (fsync came before)
    raised      an exception that ended a process: type, message, where
    fault       the failure that the check itself causes: before which step
    unobserved  a part of torch that the probe cannot watch
    left, exit  destroy_process_group; status (None for the usual end), cause (@record wrote it)

The observer, whose pid is 0, adds `act` (command), `ended` (status), `hung`, `late`, `stack`,
`leftover`, `output`. File paths are relative to the run's folder.
"""

import os
from dataclasses import dataclass
from functools import cached_property

from .worker import Facts, Worker, lost


@dataclass(eq=False)
class Attempt:
    """The workers that started together: at the first start, or at a restart."""

    number: int
    workers: list[Worker]  # by rank

    @property
    def ranks(self) -> list[Worker]:
        """The workers that joined the process group."""
        return [worker for worker in self.workers if worker.first("joined")]

    @property
    def trained(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.steps]


@dataclass(eq=False)
class Save:
    """A checkpoint that a worker wrote to the file `path`."""

    attempt: int
    worker: Worker
    fact: dict
    path: str

    @cached_property
    def step(self) -> dict | None:
        """The step whose weights it should have: the last or, in a thread, the last that it has."""
        found = prints(self.fact["content"])
        steps = [step.fact for step in self.worker.steps if step.fact["t"] < self.fact["t"]]
        written = [step for step in steps if found.issuperset(step["parameters"])]
        return next(reversed((self.fact["thread"] and written) or steps), None)

    @cached_property
    def epochs(self) -> int:
        """How many epochs its worker had begun at that step."""
        begins = [steps[0].fact["t"] for steps in self.worker.epochs]
        return self.worker.started_after + sum(self.step["t"] >= t for t in begins if self.step)

    @property
    def numbers(self) -> dict[str, int]:
        found = keys(self.fact["content"]).items()
        numbers = {key: one.get("number") if isinstance(one, dict) else one for key, one in found}
        return {key: number for key, number in numbers.items() if type(number) is int}


class Run(Facts):
    """A recorded run."""

    def __init__(self, facts: list[dict]):
        self.facts = sorted(facts, key=lambda fact: fact["t"])

    @cached_property
    def asked(self) -> dict:
        """What the first act asked for: processes, total_epochs, save_every, nodes."""
        return self.first("act")["asked"]

    @cached_property
    def processes(self) -> list[Worker]:
        """All processes that ran the script, without launchers and Python's own helpers."""
        facts = {}
        for fact in self.facts:
            facts.setdefault(fact["pid"], []).append(fact)
        return [
            Worker(mine[0], mine)
            for pid, mine in facts.items()
            if pid and mine[0]["kind"] == "process" and not is_helper(mine[0])
        ]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """At least one attempt, perhaps without workers."""
        numbers = {worker.process["attempt"] for worker in self.processes} | {0}
        attempts = [Attempt(number, self._workers(number)) for number in sorted(numbers)]
        known = {}  # after how many epochs a rank had these weights
        for attempt in attempts:
            for worker in attempt.workers:
                worker.started_after = known.get(str(worker.begin["parameters"]), 0)
            for worker in attempt.workers:
                for epoch, steps in enumerate(worker.epochs, worker.started_after + 1):
                    known[str(steps[-1].fact["parameters"])] = epoch
        return attempts

    def _workers(self, number):
        ours = [worker for worker in self.processes if worker.process["attempt"] == number]
        parents = {worker.process["parent"] for worker in ours}
        training = [worker for worker in ours if worker.first("joined", "batch")]
        workers = training or [w for w in ours if w.process["pid"] not in parents]
        return sorted(workers, key=lambda w: (w.rank is None, w.rank, w.process["pid"]))

    @cached_property
    def saves(self) -> list[Save]:
        """All checkpoints, oldest first. What is saved to memory goes to the next file."""
        found = []
        for attempt in self.attempts:
            for worker in attempt.workers:
                for number, fact in enumerate(worker.facts):
                    later = (f["path"] for f in worker.facts[number:] if f["kind"] == "opened")
                    if fact["kind"] == "saved" and (path := fact["path"] or next(later, None)):
                        found.append(Save(attempt.number, worker, fact, path))
        return sorted(found, key=lambda save: save.fact["t"])

    @cached_property
    def crash(self) -> dict | None:
        """The first exception that is neither the check's own fault nor a lost peer."""
        caused = {fact["pid"] for fact in self.all("fault")}
        own = [fact for fact in self.all("raised") if fact["pid"] not in caused]
        return next((fact for fact in own if not lost(fact)), None)

    def who(self, fact: dict) -> str:
        """The name of the process that recorded a fact."""
        worker = next((w for w in self.processes if w.process["pid"] == fact["pid"]), None)
        return worker.name if worker else "the run"


def is_helper(process):
    """Whether it does not run the script: torchrun itself, or a helper of multiprocessing."""
    words = process["argv"]
    launcher = any(os.path.basename(w) == "torchrun" or w == "torch.distributed.run" for w in words)
    ours = any(word.endswith(".py") for word in words) or any("spawn_main" in w for w in words)
    return (launcher and not process["torchrun"]) or not ours


def keys(content) -> dict:
    """All keys of a checkpoint, at any depth, with their values."""
    found = {}
    if isinstance(content, dict) and "keys" in content:
        for key, value in content["keys"].items():
            found |= {key: value} | keys(value)
    return found


def prints(content) -> set[str]:
    """The fingerprints of all tensors in a checkpoint."""
    if isinstance(content, list):
        return {one for value in content for one in prints(value)}
    if not isinstance(content, dict):
        return set()
    inner = content.get("keys", {}).values()
    return ({content.get("print")} | {one for value in inner for one in prints(value)}) - {None}


def shown(numbers: list[int], most: int = 3) -> str:
    """The first few numbers: `0, 2, 4 …`."""
    return ", ".join(map(str, numbers[:most])) + (" …" if len(numbers) > most else "")

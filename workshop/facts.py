"""What a run did, by attempt, rank, epoch and step: ddp_doctor/recorded_run.py, and what is ours.

probe/ adds these facts to those of ddp_doctor:

    device      utils.set_device was called: index
    batch       a model's input: samples (indices; -1 for a sample that is not in the dataset),
                through (the class called), grad, loss (the mean that the lessons would compute)
    gradient    of a step: sizes of its batches, learning rates; all numbers: weights, used, and
                expected (of this rank's samples, computed by the probe; None for another model's)
    fault       the failure that the check itself causes

observe.py adds `output`, and to `act` what it `asked` for.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath

from ddp_doctor import recorded_run as facts

from .worker import Worker


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
        steps = [step.fact for step in self.worker.steps if step.fact["t"] < self.fact["t"]]
        written = [step for step in steps if self.prints.issuperset(step["parameters"])]
        return next(reversed((self.fact["thread"] and written) or steps), None)

    @cached_property
    def epochs(self) -> int:
        """How many epochs its worker had begun at that step."""
        begins = [steps[0].fact["t"] for steps in self.worker.epochs]
        return self.worker.started_after + sum(self.step["t"] >= t for t in begins if self.step)

    @cached_property
    def prints(self) -> set[str]:
        return {leaf["print"] for leaf in self.fact["content"] if leaf["print"]}

    @property
    def numbers(self) -> dict[str, int]:
        content = self.fact["content"]
        return {leaf["key"]: leaf["number"] for leaf in content if leaf["number"] is not None}


class Run(facts.Run):
    """A recorded run."""

    worker = Worker

    def __init__(self, found: list[dict]):
        super().__init__([_without_folder(fact) for fact in found])

    @cached_property
    def asked(self) -> dict:
        """What the first act asked for: processes, total_epochs, save_every, nodes."""
        return self.first("act")["asked"]

    @cached_property
    def attempts(self) -> list[facts.Attempt]:
        """At least one attempt, perhaps without workers."""
        attempts = super().attempts
        known = {}  # after how many epochs a rank had these weights
        for attempt in attempts:
            for worker in attempt.workers:
                worker.started_after = known.get(str(worker.begin["parameters"]), 0)
            for worker in attempt.workers:
                for epoch, steps in enumerate(worker.epochs, worker.started_after + 1):
                    known[str(steps[-1].fact["parameters"])] = epoch
        return attempts

    @cached_property
    def saves(self) -> list[Save]:
        """All checkpoints, oldest first. What is saved to memory goes to the next file."""
        found = []
        for attempt in self.attempts:
            for worker in attempt.workers:
                for fact in worker.all("saved"):
                    later = (f["path"] for f in worker.all("opened") if f["t"] > fact["t"])
                    if path := fact["path"] or next(later, None):
                        found.append(Save(attempt.number, worker, fact, path))
        found = [save for save in found if save.prints]  # without tensors, it is no checkpoint
        return sorted(found, key=lambda save: save.fact["t"])


def _without_folder(fact):
    """A learner has one script, whichever node's folder it ran in."""
    return fact | {"where": PurePath(fact["where"]).name} if fact.get("where") else fact

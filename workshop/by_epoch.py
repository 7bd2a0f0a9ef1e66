"""What a run did, by attempt, rank, epoch and step: the doctor's recorded run, and what is ours.

The workshop's part of the probe adds these facts to those of ddp_doctor:

    device      utils.set_device was called: index; None: the script asks whether there is a GPU
    wanted      init_process_group was called: rank, world_size
    batch       a model's input: samples (indices; -1 for a sample that is not in the dataset),
                through (the class called), grad, loss (the mean that the lessons would compute)
    gradient    of a step: sizes of its batches, learning rates; all numbers: weights, used, and
                expected (of this rank's samples, computed by the probe; None for another model's)
    kept        before a step: numbers in memory of weights, gradients and state; in its backward
                passes, calls of modules (again) and of sums, by their ranks
    meanwhile   an asynchronous save began
    fault       the failure that the check itself causes

acts.py adds `output`, and to `act` what it `asked` for.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import PurePath

from ddp_doctor import recorded_run

SAMPLES = 2048  # in utils.MyTrainDataset
IDLE = "20 s without work"  # a limit of acts.py


@dataclass(eq=False)
class Step:
    """One optimizer step of one rank."""

    samples: list[int]
    losses: list[tuple[float, int]]  # mean, samples
    fact: dict
    through: str


@dataclass(eq=False)
class Worker(recorded_run.Worker):
    """A process that trains, or should."""

    ends = (*recorded_run.ENDS, "batch", "gradient")
    started_after: int = 0  # how many epochs had run when a rank had its first weights

    def __post_init__(self):
        """If several optimizers step after a pass, only the first one's step counts.

        The later stages of a pipeline have no forward pass of a whole model.
        """
        kept, fresh, passes = [], False, ("forward", "batch", "backward")
        for fact in self.facts:
            fresh |= fact["kind"] in passes and fact.get("grad", True)
            if fresh or fact["kind"] != "step":
                kept.append(fact)
            fresh &= fact["kind"] != "step"
        self.facts = kept

    @property
    def begin(self) -> dict:
        """The fingerprints before its first step, a list each: `parameters` and `state`."""
        return self.first("first") or {"parameters": [], "state": []}

    @cached_property
    def epochs(self) -> list[list[Step]]:
        """The steps of each epoch that has any. An epoch is an iteration over its loader.

        Without a DataLoader, or if samples come again in its only iteration, an epoch ends after
        the worker's share of the samples.
        """
        passes, samples, losses, through = [], [], [], None
        for fact in self.facts:
            if fact["kind"] == "loader":
                passes.append([])
            elif fact["kind"] == "batch" and fact["grad"]:
                samples, through = samples + fact["samples"], fact["through"]
                losses = [*losses, (fact["loss"], len(fact["samples"]))]
            elif fact["kind"] == "step":
                passes = passes or [[]]
                passes[-1].append(Step(samples, losses, fact, through))
                samples, losses = [], []
        passes = [steps for steps in passes if steps]
        seen = samples_of(passes[0]) if len(passes) == 1 else []
        if self.first("loader") and len(seen) <= max(self.share, len({*seen})):
            return passes
        return [part for steps in passes for part in _parts(steps, self.share)]

    @cached_property
    def share(self) -> int:
        """How many samples it should see in an epoch."""
        joined = self.first("joined")
        return -(-SAMPLES // (joined["world_size"] if joined else 1))

    @cached_property
    def seen(self) -> list[list[int]]:
        """The samples of each epoch. A batch may have the last of one and the first of the next."""
        epochs = [samples_of(steps) for steps in self.epochs]
        if len(epochs) > 1 and len(self.all("loader")) < 2:
            stream = [sample for samples in epochs for sample in samples]
            ends = range(self.share, len(stream) + 1, self.share)
            epochs = [stream[end - self.share : end] for end in ends]
        return epochs

    def epoch(self, t: float) -> int:
        """The number of the epoch that it was in at this time, from 1; 0 before its first."""
        pairs = pairwise(self.all("loader", "batch"))
        first = [batch for one, batch in pairs if one["kind"] == "loader" != batch["kind"]]
        begins = [batch["t"] for batch in first if batch["grad"]]
        if len(begins) < 2:
            begins = [steps[0].fact["t"] for steps in self.epochs]
        number = sum(begin <= t for begin in begins)
        return number and self.started_after + number

    @cached_property
    def steps(self) -> list[Step]:
        return [step for epoch in self.epochs for step in epoch]

    def place(self, number: int) -> str:
        """The place of step `number`, counted from 0: `step 3 of epoch 2`, both from 1."""
        for epoch, steps in enumerate(self.epochs, self.started_after + 1):
            if number < len(steps):
                return f"step {number + 1} of epoch {epoch}"
            number -= len(steps)
        return "the end"


def samples_of(steps: list[Step]) -> list[int]:
    return [sample for step in steps for sample in step.samples]


def _parts(steps, share):
    """The steps, parted wherever `share` samples have been seen."""
    parts = [[]]
    for step in steps:
        if len(samples_of(parts[-1])) >= share:
            parts.append([])
        parts[-1].append(step)
    return parts


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


class Run(recorded_run.Run):
    """A recorded run."""

    worker = Worker

    def __init__(self, found: list[dict]):
        super().__init__([_without_folder(fact) for fact in found])

    @cached_property
    def asked(self) -> dict:
        """What the first act asked for: processes, total_epochs, save_every, batch_size."""
        return self.first("act")["asked"]

    @property
    def stuck(self) -> bool:
        """Whether its processes waited, and the check ended them."""
        return any(fact["limit"] in (None, IDLE) for fact in self.all("hung", "late"))

    @cached_property
    def attempts(self) -> list[recorded_run.Attempt]:
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
    def crash(self) -> dict | None:
        """The first exception that is neither the check's own fault nor a lost peer."""
        caused = {fact["pid"] for fact in self.all("fault")}
        own = [fact for fact in self.all("raised") if fact["pid"] not in caused]
        return next((fact for fact in own if not recorded_run.lost(fact)), None)

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

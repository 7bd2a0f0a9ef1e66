"""A process that trains, or should: its facts by epoch and step."""

from dataclasses import dataclass
from functools import cached_property

from ddp_doctor import recorded_run as facts

SAMPLES = 2048  # in utils.MyTrainDataset; a test compares


@dataclass(eq=False)
class Step:
    """One optimizer step of one rank."""

    samples: list[int]
    losses: list[tuple[float, int]]  # mean, samples
    fact: dict
    through: str


@dataclass(eq=False)
class Worker(facts.Worker):
    """A process that trains, or should."""

    ends = (*facts.ENDS, "batch", "gradient")
    started_after: int = 0  # how many epochs had run when a rank had its first weights

    def __post_init__(self):
        """If several optimizers step after a forward pass, only the first one's step counts."""
        kept, fresh = [], False
        for fact in self.facts:
            fresh |= fact["kind"] in ("forward", "batch") and fact.get("grad", True)
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

        Without a DataLoader, or if samples come again in one iteration, an epoch ends after the
        worker's share of the samples.
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
        epochs = []
        for steps in filter(None, passes):
            seen = samples_of(steps)
            again = len(seen) > max(self.share, len(set(seen)))
            whole = self.first("loader") and not again
            epochs += [steps] if whole else _parts(steps, self.share)
        return epochs

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
        begins, loading = [], False
        for fact in self.all("loader", "batch"):
            if fact["kind"] == "batch" and fact["grad"] and loading:
                begins.append(fact["t"])
            loading = fact["kind"] == "loader"
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

"""What a run did, by attempt, rank, epoch and step: a view of the probe's facts.

A fact is a JSON object with `kind`, `t` (seconds of a clock that all processes share) and `pid`:

    process     a Python began: parent, argv, node, attempt, torchrun; its rank ... in os.environ
    joining, joined   init_process_group began; returned: rank, world_size, backend
    collective, done  what ("DDP": its constructor), bytes passed, where the script called it
    loader      an iteration over a DataLoader began
    batch       a model's input: samples (indices; -1 for a sample that is not in the dataset),
                through (the class called), grad
    backward    loss
    first, step       fingerprints of parameters and optimizer state, before the first step and
                after each step; of the gradients that the step used
    gradient    in the first few steps, all numbers: own (this rank's), used (by the optimizer)
    said        a line on stdout
    saved, loaded     path and outline of a checkpoint; renamed: source, path
    raised      an exception that ended a process: type, message, where
    fault       the failure that the check itself causes: before which step
    unobserved  a part of torch that the probe cannot watch
    left, exit  destroy_process_group; status (None for the usual end), cause (@record wrote it)

The observer, whose pid is 0, adds `act` (command), `ended` (status), `hung`, `late`, `stack`,
`leftover`, `output`. File paths are relative to the run's folder.
"""

import os
from dataclasses import dataclass, field
from functools import cached_property

SAMPLES = 2048  # in utils.MyTrainDataset; a test compares


@dataclass(eq=False)
class Step:
    """One optimizer step of one rank."""

    samples: list[int]
    losses: list[tuple[float, int]]  # mean, samples
    fact: dict
    through: str


@dataclass(eq=False)
class Worker:
    """A process that trains, or should."""

    process: dict
    facts: list[dict] = field(repr=False)
    resumed_from: list[dict] = field(default_factory=list, repr=False)  # checkpoints, newest first

    @cached_property
    def rank(self) -> int | None:
        joined = self.first("joined") or self.process
        return joined.get("rank")

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else "a process without a rank"

    @property
    def node(self) -> str | None:
        return self.process["node"]

    def all(self, *kinds: str) -> list[dict]:
        return [fact for fact in self.facts if fact["kind"] in kinds]

    def first(self, *kinds: str) -> dict | None:
        return next(iter(self.all(*kinds)), None)

    @property
    def begin(self) -> dict:
        """The fingerprints before its first step: `parameters` and `state`; None if unknown."""
        return self.first("first") or {"parameters": None, "state": None}

    @property
    def epochs(self) -> list[list[Step]]:
        """The steps of each epoch that has any."""
        return [steps for steps in self.begun if steps]

    @cached_property
    def begun(self) -> list[list[Step]]:
        """The steps of each epoch that it has begun. An epoch is an iteration over its loader.

        Without a DataLoader, an epoch ends after the worker's share of the samples.
        """
        epochs, samples, losses, through, size = [], [], [], None, 0
        joined = self.first("joined")
        share = -(-SAMPLES // (joined["world_size"] if joined else 1))
        has_loader = self.first("loader") is not None
        for fact in self.facts:
            if fact["kind"] == "loader":
                epochs.append([])
            elif fact["kind"] == "batch" and fact["grad"]:
                samples = samples + fact["samples"]
                size, through = len(fact["samples"]), fact["through"]
            elif fact["kind"] == "backward" and size:
                losses = [*losses, (fact["loss"], size)]
            elif fact["kind"] == "step":
                full = epochs and sum(len(step.samples) for step in epochs[-1]) >= share
                if not epochs or (not has_loader and full):
                    epochs.append([])
                epochs[-1].append(Step(samples, losses, fact, through))
                samples, losses = [], []
        return epochs

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

    @cached_property
    def started_after(self) -> int:
        """How many epochs had run when it began, by the checkpoint that has its first weights."""
        first = self.first("first")
        for source in self.resumed_from:
            if first and first["parameters"] in prints(source["content"]):
                return count(source["content"]) or 0
        return 0

    @cached_property
    def waits(self) -> dict | None:
        """The call in which it waits: its last fact, if that began a collective or the like.

        A rank that lost its peer was waiting too, because other ranks would not notice.
        """
        lonely = any(lost(fact) for fact in self.all("raised"))
        for fact in reversed(self.facts):
            if fact["kind"] in ("collective", "backward", "joining"):
                return fact
            if lonely and fact["kind"] in ("raised", "exit"):
                continue
            if fact["kind"] in ("done", "step", "joined", "exit", "raised", "left", "batch"):
                return None
        return None


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

    def epochs_begun(self) -> int:
        """How many epochs every rank has begun."""
        return min((len(worker.epochs) for worker in self.trained), default=0)


class Run:
    """A recorded run."""

    def __init__(self, facts: list[dict]):
        self.facts = sorted(facts, key=lambda fact: fact["t"])

    def all(self, *kinds: str) -> list[dict]:
        return [fact for fact in self.facts if fact["kind"] in kinds]

    def first(self, *kinds: str) -> dict | None:
        return next(iter(self.all(*kinds)), None)

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
            if pid and mine[0]["kind"] == "process" and not _helper(mine[0])
        ]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """At least one attempt, perhaps without workers."""
        numbers = {worker.process["attempt"] for worker in self.processes} | {0}
        return [Attempt(number, self._workers(number)) for number in sorted(numbers)]

    def _workers(self, number):
        ours = [worker for worker in self.processes if worker.process["attempt"] == number]
        parents = {worker.process["parent"] for worker in ours}
        training = [worker for worker in ours if worker.first("joined", "batch")]
        workers = training or [w for w in ours if w.process["pid"] not in parents]
        before = [fact for fact in self.facts if fact["kind"] in ("saved", "loaded")]
        for worker in workers:
            begun = worker.first("first")
            worker.resumed_from = [f for f in reversed(before) if begun and f["t"] < begun["t"]]
        return sorted(workers, key=lambda w: (w.rank is None, w.rank, w.process["pid"]))

    @cached_property
    def crash(self) -> dict | None:
        """The first exception that is neither the check's own fault nor a lost peer."""
        caused = {fact["pid"] for fact in self.all("fault")}
        return next(
            (fact for fact in self.all("raised") if fact["pid"] not in caused and not lost(fact)),
            None,
        )

    def who(self, fact: dict) -> str:
        """The name of the process that recorded a fact."""
        worker = next((w for w in self.processes if w.process["pid"] == fact["pid"]), None)
        return worker.name if worker else "the run"


def _helper(process):
    """Whether it does not run the script: torchrun itself, or a helper of multiprocessing."""
    words = process["argv"]
    launcher = any(os.path.basename(w) == "torchrun" or w == "torch.distributed.run" for w in words)
    ours = any(word.endswith(".py") for word in words) or any("spawn_main" in w for w in words)
    return (launcher and not process["torchrun"]) or not ours


def lost(fact: dict) -> bool:
    """Whether an exception only says that the process at the other end has gone."""
    signs = ("closed by peer", "reset by peer", "Broken pipe", "Connection refused")
    return any(sign in fact["message"] for sign in signs)


def keys(content) -> dict:
    """All keys of a checkpoint, at any depth, with their values."""
    found = {}
    if isinstance(content, dict) and "keys" in content:
        for key, value in content["keys"].items():
            found |= {key: value} | keys(value)
    return found


def prints(content) -> set[str]:
    """The fingerprints of all groups of tensors in a checkpoint."""
    if isinstance(content, list):
        return {one for value in content for one in prints(value)}
    if not isinstance(content, dict):
        return set()
    inner = content.get("keys", {}).values()
    return ({content.get("print")} | {one for value in inner for one in prints(value)}) - {None}


def count(content) -> int | None:
    """The number of epochs in a checkpoint: its only integer, whatever its name."""
    values = content["keys"] if isinstance(content, dict) and "keys" in content else {}
    numbers = [v for v in values.values() if isinstance(v, int) and not isinstance(v, bool)]
    return numbers[0] if len(numbers) == 1 else values.get("epochs_run")


def first_difference(one: list, other: list) -> int | None:
    """The first index at which the lists differ; None if one begins with the other."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def shown(numbers: list[int], most: int = 3) -> str:
    """The first few numbers: `0, 2, 4 …`."""
    return ", ".join(map(str, numbers[:most])) + (" …" if len(numbers) > most else "")

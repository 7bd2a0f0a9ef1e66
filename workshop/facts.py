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
from dataclasses import dataclass, field
from functools import cached_property

ENDS = ("done", "first", "gradient", "step", "joined", "fault", "exit", "raised", "left", "batch")
SAMPLES = 2048  # in utils.MyTrainDataset; a test compares


@dataclass(eq=False)
class Step:
    """One optimizer step of one rank."""

    samples: list[int]
    losses: list[tuple[float, int]]  # mean, samples
    fact: dict
    through: str


class Facts:
    facts: list[dict]

    def all(self, *kinds: str) -> list[dict]:
        return [fact for fact in self.facts if fact["kind"] in kinds]

    def first(self, *kinds: str) -> dict | None:
        return next(iter(self.all(*kinds)), None)


@dataclass(eq=False)
class Worker(Facts):
    """A process that trains, or should."""

    process: dict
    facts: list[dict] = field(repr=False)
    started_after: int = 0  # how many epochs had run when a rank had its first weights

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

    @property
    def begin(self) -> dict:
        """The fingerprints before its first step, a list each: `parameters` and `state`."""
        return (self.all("first") or [{"parameters": [], "state": []}])[-1]

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
            if fact["kind"] in ENDS:
                return None
        return None


def samples_of(steps: list[Step]) -> list[int]:
    return [sample for step in steps for sample in step.samples]


def _parts(steps, share):
    """The steps, parted wherever `share` samples have been seen."""
    parts, number = [[]], 0
    for step in steps:
        if number >= share:
            parts.append([])
            number = 0
        parts[-1].append(step)
        number += len(step.samples)
    return parts


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

    @property
    def content(self) -> dict:
        return self.fact["content"]

    @cached_property
    def step(self) -> dict | None:
        """The step whose weights it should have: the last or, in a thread, the last that it has."""
        found = prints(self.content)
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
        found = {key: _number(value) for key, value in keys(self.content).items()}
        return {key: number for key, number in found.items() if type(number) is int}


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
        return next(
            (fact for fact in self.all("raised") if fact["pid"] not in caused and not lost(fact)),
            None,
        )

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


def _number(value):
    return value.get("number") if isinstance(value, dict) else value


def first_difference(one: list, other: list) -> int | None:
    """The first index at which the lists differ; None if one begins with the other."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)


def shown(numbers: list[int], most: int = 3) -> str:
    """The first few numbers: `0, 2, 4 …`."""
    return ", ".join(map(str, numbers[:most])) + (" …" if len(numbers) > most else "")

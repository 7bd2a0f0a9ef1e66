"""What a run did, by attempt and rank: a view of the facts in probe/fact_kinds.py."""

import array
import contextlib
import os
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

TRAINING = ("forward", "backward", "before", "first", "step")
ENDS = ("done", "first", "step", "joined", "fault", "exit", "raised", "left", "forward", "loading")


class Facts:
    facts: list[dict]

    def all(self, *kinds: str) -> list[dict]:
        return [fact for fact in self.facts if fact["kind"] in kinds]

    def first(self, *kinds: str) -> dict | None:
        return next(iter(self.all(*kinds)), None)


@dataclass(eq=False)
class Worker(Facts):
    """A process that trains, or should."""

    ends: ClassVar[tuple[str, ...]] = ENDS  # facts after which it waits no more
    process: dict
    facts: list[dict] = field(repr=False)

    def __post_init__(self):
        """A step that only made state to load into is none, and its batch is not the first."""
        times = [fact["t"] for fact in self.all("prepared")]
        begins = max(times, default=0)
        self.facts = [f for f in self.facts if f["t"] > begins or f["kind"] not in TRAINING]

    @cached_property
    def rank(self) -> int | None:
        return (self.first("joined") or self.process).get("rank")

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank is not None else "a process"

    @property
    def node(self) -> str | None:
        return self.process["node"]

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
            if fact["kind"] in self.ends:
                return None
        return None

    @cached_property
    def counts(self) -> dict[str, int]:
        """What the probe counted until the process ended; of a killed one, nothing."""
        return (self.all("exit") or [{}])[-1].get("counts", {})

    @cached_property
    def number_of_steps(self) -> int:
        seen = [fact["n"] for fact in self.all("step")]
        saved = [fact["step"] for fact in self.all("saved")]  # a process that was ended counts none
        return max(self.counts.get("step", 0), *seen, *saved, 0)


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
        return [worker for worker in self.workers if worker.first("step")]


class Run(Facts):
    """A recorded run."""

    worker = Worker
    title = None  # of one of several jobs
    reference = None  # the undisturbed run, if a rank of this one was killed
    perturbed = None  # with --parity: the reference, but its weights begin a little off
    repeats = None  # whether two undisturbed runs ended with equal weights
    equally_long = True  # whether they made equally many steps: not, if a clock ends them

    def __init__(self, facts: list[dict], notes: Path | None = None, homes: tuple[Path, ...] = ()):
        self.facts = sorted(facts, key=lambda fact: fact["t"])
        self.notes, self._homes, self._indices = notes, homes, {}

    @cached_property
    def status(self) -> int | None:
        """The exit status of the first command; None if it had to be ended."""
        return self.first("ended")["status"] if self.first("ended") else None

    @cached_property
    def trained(self) -> list[Worker]:
        """The workers that made optimizer steps, of the first attempt that has any."""
        return next((a.trained for a in self.attempts if a.trained), [])

    @cached_property
    def replicas(self) -> list[Worker]:
        """These workers, if each has a rank: others need not train one model."""
        return self.trained if all(worker.rank is not None for worker in self.trained) else []

    @cached_property
    def ranks(self) -> list[Worker]:
        """The workers of that attempt: those in the process group, or the one that trained."""
        first = next((a for a in self.attempts if a.trained), self.attempts[0])
        return first.ranks or first.trained

    @cached_property
    def sources(self) -> dict[str, str]:
        """The text of each file of the user's that a fact names, by its relative path."""
        named = {fact["where"].rpartition(":")[0] for fact in self.facts if fact.get("where")}
        named = named.union(*[fact["files"] for fact in self.all("joining")])
        texts = {file: self.text(file) for file in sorted(named)}
        return {file: text for file, text in texts.items() if text is not None}

    def text(self, file: str) -> str | None:
        """The text of one of the user's files."""
        paths = [home / file for home in self._homes if (home / file).is_file()]
        return paths[0].read_text(encoding="utf-8", errors="replace") if paths else None

    def indices(self, file: str) -> list[int]:
        """What a loader drew, or a Subset holds: a file that the probe has written."""
        if file not in self._indices:
            self._indices[file] = array.array("q", (self.notes / file).read_bytes()).tolist()
        return self._indices[file]

    def begins(self, path: str, magic: bytes) -> bool:
        """Whether a file in the user's folders begins with these bytes, after the run."""
        for file in [home / path for home in self._homes]:
            with contextlib.suppress(OSError), file.open("rb") as opened:
                if opened.read(len(magic)) == magic:
                    return True
        return False

    @cached_property
    def processes(self) -> list[Worker]:
        """All processes that ran the script, without launchers and Python's own helpers.

        A rank that such a helper has forked has its arguments.
        """
        facts = {}
        for fact in self.facts:
            facts.setdefault(fact["pid"], []).append(fact)
        return [
            self.worker(mine[0], mine)
            for pid, mine in facts.items()
            if pid and mine[0]["kind"] == "process"
            if not is_helper(mine[0]) or any(fact["kind"] == "joining" for fact in mine)
        ]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """At least one attempt, perhaps without workers."""
        numbers = {worker.process["attempt"] for worker in self.processes} | {0}
        return [Attempt(number, self._workers(number)) for number in sorted(numbers)]

    def _workers(self, number):
        ours = [worker for worker in self.processes if worker.process["attempt"] == number]
        parents = {worker.process["parent"] for worker in ours}
        training = [worker for worker in ours if worker.first("joining", "joined", "batch", "step")]
        workers = training or [w for w in ours if w.process["pid"] not in parents]
        return sorted(workers, key=lambda w: (w.rank is None, w.rank, w.process["pid"]))

    def who(self, fact: dict) -> str:
        """The name of the process that recorded a fact."""
        worker = next((w for w in self.processes if w.process["pid"] == fact["pid"]), None)
        return worker.name if worker else "the run"


def matched(workers: list[Worker], kind: str, *by: str) -> dict[tuple, list[dict]]:
    """The facts of this kind that all of these have, one of each, by these fields."""
    tables = [{tuple(fact[name] for name in by): fact for fact in w.all(kind)} for w in workers]
    common = [key for key in tables[0] if all(key in one for one in tables)] if tables else []
    return {key: [table[key] for table in tables] for key in common}


def lost(fact: dict) -> bool:
    """Whether an exception only says that another process has gone, or that the check ended it."""
    signs = "closed by peer|reset by peer|likely closed|Broken pipe|Connection refused|the workshop"
    return re.search(signs, fact["message"]) is not None


def is_helper(process):
    """Whether it does not run the script: torchrun itself, or a helper of multiprocessing."""
    words = process["argv"]
    launcher = any(os.path.basename(w) == "torchrun" or w == "torch.distributed.run" for w in words)
    serves = any("import" in w and "multiprocessing" in w and "spawn_main" not in w for w in words)
    return serves or (launcher and not process["torchrun"])


def shown(things: list, most: int = 3) -> str:
    """The first few numbers or names: `0, 2, 4 …`."""
    return ", ".join(map(str, things[:most])) + (" …" if len(things) > most else "")

"""What is run for a diagnosis: the command once, on two nodes, killed, or in one process, too."""

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from .copies import copy, repository_of
from .descendants import ended_with_us
from .jobs import jobs
from .observer import Observer, Start
from .recorded_run import Run
from .rule import SEVERITIES, Finding, examine
from .rules import checkpoint_files, killed_run, parity, resuming

IDLE = 10  # seconds in which no process works or writes, while all ranks wait for each other
AFTER = 3  # steps between a save and the kill


class Mistake(Exception):
    """A mistake that the user can fix."""


@contextlib.contextmanager
def diagnosed(command: list[str], plan: str = "once", **options) -> Iterator["Diagnosis"]:
    """Run a command in the current folder with the probe inside, and examine what it did.

        with diagnosed(["torchrun", "--nproc-per-node=2", "train.py"], limit=60) as one:
            for finding in one.findings:
                print(finding.rule.name, finding.evidence, finding.where)

    `plan` is "once", "restart", "parity" or "nodes"; `options` are those of Diagnosis. `one.run`
    has the facts. When the block begins, all that the command has started has ended.
    """
    temporary = tempfile.TemporaryDirectory(prefix="ddp-doctor-", ignore_cleanup_errors=True)
    with temporary as folder, ended_with_us(folder):
        one = Diagnosis(command, Path(folder), **options)
        try:
            getattr(one, plan)()
        except KeyboardInterrupt:  # the report is that of the first run
            if one.run is None:
                raise
            one.interrupted, one.run.reference = True, None
            if plan in ("restart", "parity"):
                one.unexamined.append(f"a comparison by --{plan}: it was interrupted")
        one.judge()
        yield one


@dataclass
class Diagnosis:
    """The runs of one command, in `folder`, and what was found."""

    command: list[str]
    folder: Path
    limit: float = 300  # seconds
    cpu: int | None = None
    ignored: frozenset[str] = frozenset()
    say: Callable[[str], None] = lambda text: None
    interrupted: bool = False  # by Ctrl-C
    run: Run | None = None
    killed: Run | None = None  # with --restart
    jobs: list[Run] = field(default_factory=list)  # of the run: mostly itself
    findings: list[Finding] = field(default_factory=list)
    unexamined: list[str] = field(default_factory=list)

    def judge(self):
        """Apply the rules to the facts. Errors come first."""
        run, killed = self.run, self.killed
        self.jobs, self.findings = [run] if run.reference or killed else jobs(run), []
        for job in self.jobs:
            found = examine(job, self.ignored, parity if run.reference else None)
            prefix = f"{job.title}: " if job.title else ""
            self.findings += [replace(one, evidence=f"{prefix}{one.evidence}") for one in found]
        if killed:
            self.findings += examine(killed, self.ignored, resuming)
        self.findings.sort(key=lambda finding: SEVERITIES.index(finding.rule.severity))

    def once(self):
        """In the user's folder."""
        observer = self._observer("once", homes(self.command))
        self._play(observer, 0, Start(self.command, Path.cwd(), self._environment()))
        self.run = observer.run()

    def nodes(self):
        """Two agents with one process each, in separate folders, that meet on this machine."""
        if not is_torchrun(self.command):
            raise Mistake("--nodes needs a command that begins with torchrun")
        observer = self._observer("nodes", [])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = _torchrun(
            self.command, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d",
            "--local-addr=127.0.0.1", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={port}",
        )  # fmt: skip
        starts = []
        for node in ("node1", "node2"):
            copied, env = self._copy(node)
            observer.homes += [copied.place, copied.top]
            starts.append(Start([*map(copied.moved, command)], copied.place, env, node))
        self._play(observer, 0, *starts)
        self.run = observer.run()

    def _play(self, observer, number, *starts):
        try:
            return observer.play(number, starts)
        except KeyboardInterrupt:
            self.run = self.run or observer.run()
            raise

    def restart(self):
        """An undisturbed run, then one of which a rank is killed, and which is started again."""
        reference = self.run = self._in_copy("undisturbed")
        steps = sorted({fact["step"] for _, fact, _ in checkpoint_files.saves(reference)})
        total = killed_run.total(reference)
        steps = [step for step in steps if 0 < step < total]
        hindrances = {
            "the command runs several jobs: try each of them alone": len(jobs(reference)) > 1,
            "the undisturbed run did not end": reference.status is None,
            f"the undisturbed run ended with status {reference.status}": reference.status,
            "there was no checkpoint before the last step": not steps,
        }
        if found := [why for why, hinders in hindrances.items() if hinders]:
            self.unexamined.append(f"a restart: {found[0]}")
            return
        saved = steps[(len(steps) - 1) // 2]
        rank = max(worker.rank or 0 for worker in reference.trained)
        fault = {"rank": rank, "step": min(saved + AFTER, total)}
        self.say(f"again, to kill rank {rank} after step {fault['step']}: a traceback is of that")
        run = self._in_copy("killed", fault)
        run.reference = reference
        if killed_run.ends_differently(run):
            again = self._in_copy("undisturbed again")
            run.repeats = killed_run.final_weights(again) == killed_run.final_weights(reference)
            run.equally_long = killed_run.total(again) == killed_run.total(reference)
        self.killed = run

    def parity(self):
        """With its processes, then in one process that has batches as large as theirs together."""
        run = self.run = self._in_copy("several", DOCTOR_PARITY="1")
        number = len(run.trained)
        if run.status != 0 or number < 2 or len(jobs(run)) > 1:
            several = ", several jobs" if len(jobs(run)) > 1 else ""
            told = f"parity: {number} processes trained, status {run.status}{several}"
            self.unexamined.append(told)
            return
        first_gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
        own = {"DOCTOR_CPU": "1"} if self.cpu else {"CUDA_VISIBLE_DEVICES": first_gpu}
        command = _torchrun(self.command, "--standalone", "--nnodes=1", "--nproc-per-node=1")
        firsts = [fact for worker in run.trained for fact in worker.all("first")]
        if any(fact["tensor_parallel"] for fact in firsts):  # some ranks share a batch
            number = len({str(w.first("forward")["rows"]) for w in run.trained})
        own |= {"DOCTOR_PARITY": str(number)}
        run.reference = self._in_copy("one", command=command, **own)
        if examine(run, file=parity):  # by more than a little change of the weights does?
            own |= {"DOCTOR_PERTURBED": "1"}
            run.perturbed = self._in_copy("perturbed", command=command, **own)

    def _in_copy(self, name, fault=None, command=None, **own):
        copied, env = self._copy(name)
        env |= {"DOCTOR_EVERY": "1", **own}
        observer = self._observer(f"{name} facts", [copied.place, copied.top])
        first = env | ({"DOCTOR_FAULT": json.dumps(fault)} if fault else {})
        command = [*map(copied.moved, command or self.command)]
        ended_well = self._play(observer, 0, Start(command, copied.place, first))
        if fault and not (ended_well and _went_on(observer.run())):
            self.say("the kill is over, and the command starts again")
            self._play(observer, 1, Start(command, copied.place, env))
        return observer.run()

    def _copy(self, name):
        copied = copy(Path.cwd(), self.folder / name, self.command)
        own = {"PYTHONPATH": copied.moved(os.environ.get("PYTHONPATH", ""))}
        linked = os.pathsep.join(map(str, copied.linked))
        return copied, self._environment(DOCTOR_LINKED=linked, **own)

    def _observer(self, name, homes):
        notes = self.folder / name
        notes.mkdir()
        return Observer(notes, homes, self._late, idle=IDLE)

    def _late(self, seconds, processor_seconds, sizes):
        return f"{self.limit:g} s" if seconds > self.limit else None

    def _environment(self, **own):
        return {**os.environ, **({"DOCTOR_CPU": str(self.cpu)} if self.cpu else {}), **own}


def _went_on(run):
    """Whether a rank trained or saved after the kill. A launcher may hide it with status 0."""
    killed = run.first("fault")
    return not killed or any(fact["t"] > killed["t"] for fact in run.all("first", "saved"))


def homes(command: list[str]) -> list[Path]:
    """The folders of the user's own files: this one, that of the script, and their repository."""
    scripts = [Path(word) for word in command if word.endswith(".py") and Path(word).is_file()]
    found = [Path.cwd(), *(script.resolve().parent for script in scripts)]
    return [*dict.fromkeys([*found, *filter(None, map(repository_of, found))])]


def is_torchrun(command: list[str]) -> bool:
    return Path(command[0]).name == "torchrun" or "torch.distributed.run" in command[:3]


def _torchrun(command, *own):
    """The same torchrun with other options for where it runs. Another command is unchanged."""
    if not is_torchrun(command):
        return command
    from torch.distributed.run import get_args_parser  # takes a second

    start = 1 if Path(command[0]).name == "torchrun" else 3
    told = get_args_parser().parse_args(command[start:])
    script = len(command) - len(told.training_script_args) - 1
    options = [word for word in command[:script] if word not in ("--standalone", "--")]
    return [*options, *own, *command[script:]]  # of several values, torchrun takes the last

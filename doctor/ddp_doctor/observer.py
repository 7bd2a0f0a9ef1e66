"""Run commands with the probe inside, limit them, end all their processes, collect the facts."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .descendants import Command, psutil
from .recorded_run import Run

PROBE = Path(__file__).parent / "probe"
LITTLE = 0.01  # of a processor, per process: what background threads use while all others wait
IDLE = 3  # seconds in which no process works or writes, while all ranks wait for each other
EVERY = 0.2  # seconds between two looks, each of which takes some milliseconds
GRACE = 8  # seconds for what is left at the end: a DataLoader's workers take 5 s
BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


@dataclass(frozen=True)
class Start:
    """A command of an act, its whole environment, and the options for Popen."""

    words: list[str]
    folder: Path
    env: dict[str, str]
    node: str | None = None
    options: dict = field(default_factory=dict)


@dataclass
class Observer:
    """Plays acts. The probe writes its facts to `notes`, an empty folder.

    `homes` are the folders of the user's own files. `late(seconds, processor_seconds, sizes)` names
    the limit that a run has reached, or returns None; the sizes are those of the files in `notes`
    and in the folders `written`. After `quiet` seconds without work or writes,
    a run hangs, whatever its ranks do. `watch` is called a few times per second.
    """

    notes: Path
    homes: list[Path]
    late: Callable
    written: tuple[Path, ...] = ()
    quiet: float = float("inf")
    idle: float = IDLE
    watch: Callable = lambda: None
    own: list[dict] = field(default_factory=list)  # our facts
    _started: list[Command] = field(default_factory=list)

    def play(self, number: int, starts: list[Start], **told) -> bool:
        """Run one act to its end. Returns whether every command ended with status 0."""
        try:
            self.note("act", **told)
            running = [self._start(number, start) for start in starts]
            self._watch(running)
            for process in running:
                self.note("ended", status=process.process.poll(), act=number)
            self._end_all()
        except BaseException:  # a signal
            self._cut_off("late", limit="Ctrl-C", idle=0)
            raise
        finally:
            self._end_all()
        return not any(process.process.poll() for process in running)

    def _start(self, number, start):
        path = [str(PROBE), *filter(None, [start.env.get("PYTHONPATH")])]
        homes = sorted(self.homes, key=lambda home: home != start.folder)  # its own first
        own = {
            "PYTHONPATH": os.pathsep.join(path),
            "DOCTOR_FACTS": str(self.notes),
            "DOCTOR_HOME": os.pathsep.join(map(str, homes)),
            "DOCTOR_ACT": str(number),
        }
        if start.node:
            own["DOCTOR_NODE"] = start.node
        process = Command(start.words, start.folder, {**start.env, **own}, **start.options)
        self._started.append(process)
        return process

    def _watch(self, running):
        """Wait until all have ended, or until they hang."""
        begun = last = time.monotonic()
        before, spent, worked = None, 0, {}
        while left := [process for process in running if process.process.poll() is None]:
            with contextlib.suppress(subprocess.TimeoutExpired):
                left[0].process.wait(EVERY)
            self.watch()
            now = time.monotonic()
            sizes = self._sizes()
            times, busy = self._activity(running, worked)
            works = abs(sum(times) - spent) > LITTLE * len(times) * (now - last)
            if sizes != before or busy or works:
                before, spent, last = sizes, sum(times), now
            idle = now - last
            hung = idle > self.idle and (idle > self.quiet or self._all_wait())
            limit = self.late(now - begun, sum(worked.values()), sizes)
            if hung:
                return self._cut_off("hung", limit=limit)
            if limit:
                return self._cut_off("late", limit=limit, idle=idle)

    def _all_wait(self):
        """Whether each rank that is alive is in a call that ends when another rank comes."""
        workers, alive = self.run().attempts[-1].workers, self._alive()
        here = [worker for worker in workers if worker.process["pid"] in alive]
        waits = [worker.waits and not worker.first("raised") for worker in here]
        return psutil.LINUX and bool(waits) and all(waits)  # elsewhere, runnable looks like idle

    def _sizes(self):
        sizes = {}
        for folder in (self.notes, *self.written):
            for path in folder.glob("*"):
                if path.suffix != ".stack":  # each fork makes an empty one
                    with contextlib.suppress(OSError):  # deleted meanwhile
                        sizes[path] = path.stat().st_size
        return sizes

    def _activity(self, running, worked):
        """The processor time of each process but launchers, and whether one is runnable.

        `worked` gets the seconds of each.
        """
        busy, times = False, []
        for process in running:
            tree = process.tree()
            for python in tree:
                with contextlib.suppress(psutil.Error), python.oneshot():
                    spent = python.cpu_times()
                    worked[python.pid] = spent.user + spent.system
                    # A launcher works a little while it waits for its workers.
                    if python is not tree[0] or len(tree) == 1:
                        times.append(worked[python.pid])
                        busy |= psutil.LINUX and python.status() in BUSY
        return times, busy

    def _cut_off(self, kind, **fields):
        """Note that the run is to be ended, and where each of its processes is."""
        alive = {process.pid: process for one in self._started for process in one.alive()}
        self.note(kind, alive=[*alive], **fields)
        asked = []
        for pid, process in alive.items():
            file = self.notes / f"{pid}.stack"
            with contextlib.suppress(psutil.Error):
                if file.is_file():  # else the signal would end it
                    asked.append((file, pid, process.ppid()))
                    process.send_signal(signal.SIGUSR1)
        time.sleep(0.3)
        for file, pid, parent in asked:
            text = file.read_text(errors="replace")
            for home in self.homes:
                text = text.replace(f"{home}{os.sep}", "")
            self.note("stack", of=pid, parent=parent, text=text[-8000:])  # main is the last

    def _end_all(self):
        """SIGKILL what is left. A process left by a run that did not hang is a fact."""
        ended_by_us = any(fact["kind"] in ("hung", "late") for fact in self.own)
        end = time.monotonic() + (0 if ended_by_us else GRACE)
        while self._alive() and time.monotonic() < end:
            time.sleep(0.05)
        for process in self._started:
            for left in process.kill():
                if not ended_by_us:
                    self.note("leftover", of=left.pid)
        self._started.clear()

    def _alive(self):
        return [left.pid for process in self._started for left in process.alive()]

    def note(self, kind, **fields):
        """Add a fact of the observer itself."""
        self.own.append({"kind": kind, "t": time.monotonic(), "pid": 0, **fields})

    def run(self) -> Run:
        """What has been recorded so far."""
        return Run(self.own + self.facts(), self.notes, tuple(self.homes))

    def facts(self) -> list[dict]:
        facts = []
        for path in [*self.notes.glob("*.jsonl"), *self.notes.glob("*.newest")]:
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # its writer was killed while it wrote
                    facts.append(json.loads(line))
        return facts

"""Start a script with the probe, limit it, terminate all its processes, and collect the facts."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.processes import Process, ended_with_us, environment, free_port, psutil

from .facts import Run

PROBE = Path(__file__).parent / "probe"
LIMIT = 60  # seconds of processor time per act; ten times that by the clock
MOST = 100_000_000  # bytes that a run may write, so that endless prints do not fill the disk
IDLE = 3  # seconds in which no process works or writes, while all ranks wait for each other
QUIET = 20  # the same if one of them may end by itself, as after time.sleep
BUSY = (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


@dataclass(frozen=True)
class Start:
    """A command of an act. `node` is the folder it runs in, if there are several nodes."""

    words: list[str]
    env: dict[str, str] = field(default_factory=dict)
    node: str | None = None


@dataclass(frozen=True)
class Act:
    """Commands that start together. `asked` says what they should do, `fault` which rank fails."""

    starts: list[Start]
    asked: dict
    fault: dict | None = None


def observe(files: list[Path], acts: list[Act], limit: float = LIMIT) -> Run:
    """Run the acts, one after the other, in a new folder with copies of `files`.

    Always returns. It terminates an act that hangs, or that works for more than `limit` seconds of
    processor time; the facts then say what each rank was doing. Leaves no process and no file.
    """
    folder = tempfile.TemporaryDirectory(prefix="workshop-", ignore_cleanup_errors=True)
    with folder as place, ended_with_us(place):
        return _Stage(Path(os.path.realpath(place)), files, limit).play(acts)


class _Stage:
    def __init__(self, place, files, limit):
        self.files, self.limit = files, limit
        self.folder, self.notes, self.temporary = (place / n for n in ("run", "facts", "tmp"))
        for path in (self.folder, self.notes, self.temporary):
            path.mkdir()
        self.own = []  # our facts
        self.started = []

    def play(self, acts):
        try:
            for number, act in enumerate(acts):
                self._prepare(act)
                if not self._play(number, act):
                    break
        except BaseException:
            self._end_all(at_once=True)
            raise
        return Run(self.own + self._facts())

    def _prepare(self, act):
        for node in {start.node or "" for start in act.starts}:
            folder = self.folder / node
            folder.mkdir(exist_ok=True)
            for file in self.files:
                shutil.copy(file, folder)

    def _play(self, number, act):
        command = " ".join(act.starts[0].words)
        self._note("act", number=number, command=command, asked=act.asked)
        with contextlib.ExitStack() as files:
            logs = [
                files.enter_context(open(self.temporary / f"{number}.{nth}.log", "w+b"))
                for nth in range(len(act.starts))
            ]
            port = free_port()
            running = [
                self._start(number, act, start, log, port)
                for start, log in zip(act.starts, logs, strict=True)
            ]
            self._watch(running)
            for process in running:
                self._note("ended", status=process.process.poll(), act=number)
            self._end_all()
            for start, log in zip(act.starts, logs, strict=True):
                log.seek(max(0, os.fstat(log.fileno()).st_size - 100_000))
                text = log.read().decode(errors="replace").replace(f"{self.folder}{os.sep}", "")
                self._note("output", node=start.node, text="\n".join(text.splitlines()[-60:]))
        return not any(process.process.poll() for process in running)

    def _start(self, number, act, start, log, port):
        path = [str(PROBE), *filter(None, [os.environ.get("PYTHONPATH")])]
        own = {
            "PYTHONPATH": os.pathsep.join(path),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # the same verdicts on every machine
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "WORKSHOP_FACTS": str(self.notes),
            "WORKSHOP_FOLDER": str(self.folder),
            "WORKSHOP_ACT": str(number),
            "WORKSHOP_FAULT": json.dumps(act.fault or {}),
        }
        if start.node:
            own["WORKSHOP_NODE"] = start.node
        own |= {name: value.format(port=port) for name, value in start.env.items()}
        folder = self.folder / (start.node or "")
        process = Process(start.words, folder, environment(**own), stdout=log)
        self.started.append(process)
        return process

    def _watch(self, running):
        """Wait until all have ended, or until they hang."""
        begun = last = time.monotonic()
        before, worked = None, {}
        while any(process.process.poll() is None for process in running):
            time.sleep(0.05)
            now = time.monotonic()
            sizes = self._sizes()
            times, busy = self._activity(running, worked)
            seen = sizes, times
            if seen != before or busy:
                before, last = seen, now
            idle = now - last > IDLE and (now - last > QUIET or self._all_wait())
            late = {
                f"{self.limit:.0f} s of processor time": sum(worked.values()) > self.limit,
                f"{10 * self.limit:.0f} s": now - begun > 10 * self.limit,
                f"{MOST:,} bytes": sum(sizes.values()) > MOST,
            }
            if idle or any(late.values()):
                limit = next((name for name, reached in late.items() if reached), None)
                self._note("hung" if idle else "late", limit=limit, alive=self._alive())
                self._ask_for_stacks()
                return

    def _all_wait(self):
        """Whether each rank that is alive is in a call that ends when another rank comes."""
        workers, alive = Run(self.own + self._facts()).attempts[-1].workers, self._alive()
        here = [worker for worker in workers if worker.process["pid"] in alive]
        waits = [worker.waits and not worker.first("raised") for worker in here]
        return psutil.LINUX and bool(waits) and all(waits)  # elsewhere, runnable looks like idle

    def _sizes(self):
        """Those of the run's files, of its facts and its output."""
        sizes = {}
        for path in self.notes.parent.glob("*/*"):
            with contextlib.suppress(OSError):  # deleted meanwhile
                sizes[path] = path.stat().st_size
        return sizes

    def _activity(self, running, worked):
        """The processor time of the processes, and whether one is runnable.

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
                        times.append(int(worked[python.pid] * 20))
                        busy |= psutil.LINUX and python.status() in BUSY
        return times, busy

    def _noted(self):
        """The files of the probe, without what a script may have put beside them."""
        return [p for p in self.notes.glob("*.jsonl") if p.stem.isdecimal() and p.is_file()]

    def _ask_for_stacks(self):
        pids = {int(path.stem) for path in self._noted()} & {*self._alive()}
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)
        for pid in pids:
            with contextlib.suppress(OSError):  # a script may delete it
                text = (self.notes / f"{pid}.stack").read_text(errors="replace")
                text = text.replace(f"{self.folder}{os.sep}", "")
                self._note("stack", of=pid, text=text[:4000])

    def _end_all(self, at_once=False):
        """SIGKILL what is left. A process left by a run that did not hang is a fact."""
        ended_by_us = at_once or any(fact["kind"] in ("hung", "late") for fact in self.own)
        end = time.monotonic() + (0 if ended_by_us else 8)  # a DataLoader's workers take 5 s
        while self._alive() and time.monotonic() < end:
            time.sleep(0.05)
        for process in self.started:
            for left in process.kill():
                if not ended_by_us:
                    self._note("leftover", of=left.pid)
        self.started.clear()

    def _alive(self):
        return [left.pid for process in self.started for left in process.alive()]

    def _note(self, kind, **fields):
        self.own.append({"kind": kind, "t": time.monotonic(), "pid": 0, **fields})

    def _facts(self):
        facts = []
        for path in self._noted():
            for line in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # its writer was killed while it wrote
                    fact = json.loads(line)
                    if isinstance(fact, dict) and {"kind", "t", "pid"} <= fact.keys():
                        facts.append(fact)
        return facts

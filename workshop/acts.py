"""How a check runs commands: in a new folder, limited, observed by ddp_doctor and by the
workshop's part of its probe.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import STDOUT

from ddp_doctor import observer
from ddp_doctor.descendants import ended_with_us
from tools.processes import environment, free_port

from .by_epoch import IDLE, Run
from .exercises import ROOT

LIMIT = 60  # seconds of processor time per act; ten times that by the clock
ALIVE = 0.03  # of a processor, for QUIET seconds: a rank that waits for others polls their store
MOST = 100_000_000  # bytes that a run may write, so that endless prints do not fill the disk
QUIET = 20  # seconds
PART = {
    "DOCTOR_EVERY": "1",
    "DOCTOR_NOT_THEIRS": os.pathsep.join(
        ["utils.py", "guard.py", *(path.name for path in ROOT.glob("mingpt/[!t]*.py"))]
    ),
    "DOCTOR_PARTS": str(Path(__file__).parent / "probe" / "begin.py"),
}


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


def observe(
    files: list[Path], acts: list[Act], limit: float = LIMIT, tell: Callable = lambda: None
) -> Iterator[Run]:
    """Run the acts, one after the other, in a new folder with copies of `files`.

    Yields what has been seen so far after each act, of which one that fails is the last. An act
    that hangs, or that works for more than `limit` seconds of processor time, is terminated; the
    facts then say what each rank was doing. Leaves no process and no file when it is closed.
    Meanwhile it calls `tell` a few times per second.
    """
    folder = tempfile.TemporaryDirectory(prefix="workshop-", ignore_cleanup_errors=True)
    with folder as name, ended_with_us(name):
        place = Path(os.path.realpath(name))
        home, notes, temporary = (place / name for name in ("run", "facts", "tmp"))
        for path in (home, notes, temporary):
            path.mkdir()
        root = os.path.commonpath([file.parent for file in files])
        watch = observer.Observer(notes, [home], _Limits(limit), (home, temporary), watch=tell)
        number = 0  # of attempts before the act
        for act in acts:
            for node in {start.node or "" for start in act.starts}:
                (home / node).mkdir(exist_ok=True)
                for file in files:
                    target = home / node / file.relative_to(root)
                    target.parent.mkdir(exist_ok=True)
                    shutil.copy(file, target)
            went_well = _play(watch, number, act, home, temporary)
            yield Run(watch.own + watch.facts())
            if not went_well:
                return
            number += 1 + bool(act.fault)  # torchrun restarts after a failure


def last(runs: Iterator[Run]) -> Run:
    *_, run = runs
    return run


def _play(watch, number, act, home, temporary):
    """Run one act, and note the end of its output. Returns whether it ended with status 0."""
    port = free_port()
    with contextlib.ExitStack() as files:
        starts = []
        for nth, start in enumerate(act.starts):
            log = files.enter_context(open(temporary / f"{number}.{nth}.log", "w+b"))
            folder, output = home / (start.node or ""), {"stdout": log, "stderr": STDOUT}
            env = _environment(act, start, port, temporary)
            starts.append(observer.Start(start.words, folder, env, start.node, output))
        went_well = watch.play(number, starts, asked=act.asked)
        for start in starts:
            log = start.options["stdout"]
            log.seek(max(0, os.fstat(log.fileno()).st_size - 100_000))
            text = log.read().decode(errors="replace").replace(f"{home}{os.sep}", "")
            watch.note("output", node=start.node, text="\n".join(text.splitlines()[-60:]))
    return went_well


def _environment(act, start, port, temporary):
    own = PART | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(temporary),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",  # the same verdicts on every machine
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "WORKSHOP_FAULT": json.dumps(act.fault or {}),
    }
    own |= {name: value.format(port=port) for name, value in start.env.items()}
    return environment(**own)


class _Limits:
    """Names the limit that an act has reached."""

    def __init__(self, limit):
        self.limit, self.since, self.before = limit, 0, 0

    def __call__(self, seconds, worked, sizes):
        if worked - self.before > ALIVE * QUIET or seconds < self.since:  # else the next act
            self.since, self.before = seconds, worked
        limits = {
            IDLE: seconds - self.since > QUIET,
            f"{self.limit:.0f} s of processor time": worked > self.limit,
            f"{10 * self.limit:.0f} s": seconds > 10 * self.limit,
            f"{MOST:,} bytes": sum(sizes.values()) > MOST,
        }
        return next((name for name, reached in limits.items() if reached), None)

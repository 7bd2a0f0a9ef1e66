"""Run a script in a new folder, observed by ddp_doctor and by the workshop's part of its probe."""

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from subprocess import STDOUT

from ddp_doctor import observer as doctor
from tools.processes import ended_with_us, environment, free_port

from .facts import Run

LIMIT = 60  # seconds of processor time per act; ten times that by the clock
MOST = 100_000_000  # bytes that a run may write, so that endless prints do not fill the disk
QUIET = 20  # seconds after which even a run hangs that may end by itself, as after time.sleep
PART = {
    "DOCTOR_EVERY": "1",
    "DOCTOR_NOT_THEIRS": os.pathsep.join(["utils.py", "guard.py"]),
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
        self.files = files
        self.folder, notes, self.temporary = (place / name for name in ("run", "facts", "tmp"))
        for path in (self.folder, notes, self.temporary):
            path.mkdir()
        self.observer = doctor.Observer(
            notes, [self.folder], partial(_late, limit), (self.folder, self.temporary), QUIET
        )

    def play(self, acts):
        for number, act in enumerate(acts):
            for node in {start.node or "" for start in act.starts}:
                (self.folder / node).mkdir(exist_ok=True)
                for file in self.files:
                    shutil.copy(file, self.folder / node)
            if not self._play(number, act):
                break
        return Run(self.observer.own + self.observer.facts())

    def _play(self, number, act):
        with contextlib.ExitStack() as files:
            logs = [
                files.enter_context(open(self.temporary / f"{number}.{nth}.log", "w+b"))
                for nth in range(len(act.starts))
            ]
            port = free_port()
            starts = [
                self._start(act, start, log, port)
                for start, log in zip(act.starts, logs, strict=True)
            ]
            went_well = self.observer.play(number, starts, asked=act.asked)
            for start, log in zip(act.starts, logs, strict=True):
                log.seek(max(0, os.fstat(log.fileno()).st_size - 100_000))
                text = log.read().decode(errors="replace").replace(f"{self.folder}{os.sep}", "")
                text = "\n".join(text.splitlines()[-60:])
                self.observer.note("output", node=start.node, text=text)
        return went_well

    def _start(self, act, start, log, port):
        own = PART | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # the same verdicts on every machine
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            "WORKSHOP_FAULT": json.dumps(act.fault or {}),
        }
        own |= {name: value.format(port=port) for name, value in start.env.items()}
        folder, output = self.folder / (start.node or ""), {"stdout": log, "stderr": STDOUT}
        return doctor.Start(start.words, folder, environment(**own), start.node, output)


def _late(limit, seconds, worked, sizes):
    """The limit that a run has reached."""
    limits = {
        f"{limit:.0f} s of processor time": worked > limit,
        f"{10 * limit:.0f} s": seconds > 10 * limit,
        f"{MOST:,} bytes": sum(sizes.values()) > MOST,
    }
    return next((name for name, reached in limits.items() if reached), None)

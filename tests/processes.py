"""Start a lesson as its page says, bound every wait, and leave no process behind."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tools import series

ROOT = Path(__file__).resolve().parent.parent
LESSONS = series.load(ROOT)
SPINE = ("single_gpu", "multigpu", "multigpu_torchrun", "multinode")
LIMIT = 600  # seconds; a bound on hangs, not a measure of speed, also on a busy machine


def command(lesson, *args, nproc=2, launcher=()):
    """The documented command of `lesson` with other arguments: `(environment, words)`.

    `launcher`, if given, are the flags of torchrun in place of the documented ones.
    """
    variables, words = LESSONS[lesson].command
    start = next(i for i, word in enumerate(words) if word == "-m" or word.endswith(".py"))
    flags = words[1:start]
    if words[start] == "-m":
        script, variables = words[start : start + 2], {**variables, "PYTHONPATH": str(ROOT)}
    else:
        script = [str(ROOT / words[start])]
    if words[0] == "torchrun":
        flags = [flag for flag in launcher or flags if not flag.startswith("--nproc_per_node")]
        flags.append(f"--nproc_per_node={nproc}")
    else:
        variables = {**variables, "NPROC": str(nproc)}
    return variables, [words[0], *flags, *script, *map(str, args)]


STANDALONE = ("--standalone", "--max-restarts=3")


class Process:
    """A lesson at work, in a session of its own.

    `err` holds all of stderr once it has ended; `lines` grow while it runs.
    """

    def __init__(self, lesson, *args, cwd, nproc=2, launcher=(), env=(), prelude=None):
        if lesson == "multinode" and not launcher:
            launcher = STANDALONE
        variables, words = command(lesson, *args, nproc=nproc, launcher=launcher)
        temporary = Path(cwd) / ".tmp"  # torch and torchrun leave files in it when they are killed
        temporary.mkdir(exist_ok=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name not in ("NPROC", "OMP_NUM_THREADS", "RANK", "WORLD_SIZE", "LOCAL_RANK")
        }
        env = dict(env)
        if "PYTHONPATH" in env and "PYTHONPATH" in variables:
            env["PYTHONPATH"] += ":" + variables["PYTHONPATH"]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env={**inherited, "PATH": path, "TMPDIR": str(temporary), **variables, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=prelude,
        )
        self.lines, self.err = [], ""
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=read, daemon=True) for read in (self._read_out, self._read_err)
        ]
        for reader in self._readers:
            reader.start()

    def _read_out(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def _read_err(self):
        for line in self.process.stderr:
            self.err += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    @property
    def out(self):
        return "\n".join(self.lines)

    @property
    def tail(self):
        return "\n".join([*self.lines[-20:], "stderr:", *self.err.splitlines()[-40:]])

    def wait(self, limit=LIMIT):
        """The exit status, when process and output have ended; a hang fails the test."""
        try:
            status = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {limit} s\n{self.tail}") from None
        for reader in self._readers:
            reader.join(limit)
        return status

    def wait_for(self, pattern, since=0, limit=LIMIT):
        """Wait until a line from number `since` on matches; returns the number of the next line."""
        end = time.monotonic() + limit
        number = since
        with self._changed:
            while True:
                for number in range(since, len(self.lines)):
                    if re.search(pattern, self.lines[number]):
                        return number + 1
                since = len(self.lines)
                if time.monotonic() > end or not self._readers[0].is_alive():
                    self.kill()
                    raise AssertionError(f"no line matched {pattern!r}\n{self.tail}")
                self._changed.wait(0.5)

    def workers(self):
        """The processes that train, in the order of their start."""
        return [pid for pid in _tree(self.process.pid) if _is_worker(pid)]

    def kill(self):
        """SIGKILL for everything it has started, torchrun's workers included."""
        for pid in _tree(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def run(lesson, *args, limit=LIMIT, **options):
    """Run `lesson` to its end: a `Process` whose `.status` is the exit status."""
    with Process(lesson, *args, **options) as process:
        process.status = process.wait(limit)
    return process


def epochs(lines):
    """The epochs (from 1) whose loss was printed, in order."""
    return [int(found[1]) for line in lines if (found := re.match(r"Epoch +(\d+) \| loss", line))]


def losses(lines):
    """`(loss, samples)` of each printed epoch."""
    found = (re.search(r"loss ([\d.]+) over (\d+) samples", line) for line in lines)
    return [(float(match[1]), int(match[2])) for match in found if match]


def _children(pid):
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(child) for child in children.split()]


def _tree(pid):
    pids = [pid]
    for child in _children(pid):
        pids += _tree(child)
    return pids


def _is_worker(pid):
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text()
        environment = Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return False
    script = ".py" in line or "\0-m\0" in line
    return "spawn_main" in line or ("LOCAL_RANK=" in environment and script)

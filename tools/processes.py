"""Start commands in a clean environment, read their lines, and end everything they started.

    with Process(["torchrun", ...], cwd=folder) as process:
        process.wait_for(r"Epoch +3")      # a line of its output
        status = process.wait()            # every wait has a limit

A process group does not hold everything: torchrun gives each worker its own session. But every
child inherits the environment, so this module puts a mark there and finds all children by it. Marks
nest like paths: ending a command also ends the commands that it started with this module, or with
the doctor, which uses the same variable.
"""

import atexit
import collections
import contextlib
import os
import re
import shlex
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tools.errors import UserError

try:
    import psutil
except ImportError:
    print(f"{sys.executable} has no psutil: source .venv/bin/activate, try again", file=sys.stderr)
    sys.exit(2)

MARK = "STARTED_BY"
OURS = f"{os.environ.get(MARK, '')}/{uuid.uuid4().hex[:12]}"  # above the marks of all we start
LIMIT = 600  # seconds; it catches hangs, even on a busy machine, and says nothing about speed
FOREVER = threading.TIMEOUT_MAX
# What a launcher, or a user by hand, sets for the scripts.
LAUNCHERS = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|(TORCHELASTIC|PET|SLURM|OMPI)_.*"
    r"|NPROC|OMP_NUM_THREADS"
)


def environment(**variables: str) -> dict[str, str]:
    """Our environment without launchers' variables, our Python first on PATH, plus `variables`."""
    inherited = {name: text for name, text in os.environ.items() if not LAUNCHERS.fullmatch(name)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return inherited | {"PATH": path} | variables


class Process:
    """A command in its own session. `lines` and `err` grow while it runs.

    `env` is its whole environment. `say` gets each line. `options` go to Popen: stderr is part of
    the output unless they have `stderr=PIPE`, and stdin is empty by default.
    """

    def __init__(self, words, cwd=None, env=None, say=lambda line: None, **options):
        self.lines, self.err, self._say = [], "", say
        self._changed = threading.Condition()
        words, self.mark = [str(word) for word in words], f"{OURS}/{uuid.uuid4().hex[:12]}"
        self.title = shlex.join(words)  # for messages
        options = {
            "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
            **options,
        }  # fmt: skip
        self.process = subprocess.Popen(
            words, cwd=cwd, env={**(environment() if env is None else env), MARK: self.mark},
            start_new_session=True, text=True, errors="replace", **options,
        )  # fmt: skip
        atexit.register(self.kill)
        self._root = psutil.Process(self.process.pid)
        streams = {self._read_out: self.process.stdout, self._read_err: self.process.stderr}
        reads = [read for read, stream in streams.items() if stream]
        self._readers = [threading.Thread(target=read, daemon=True) for read in reads]
        for reader in self._readers:
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _read_out(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._say(self.lines[-1])
                self._changed.notify_all()

    def _read_err(self):
        for line in self.process.stderr:
            self.err += line

    @property
    def out(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)

    @property
    def tail(self) -> str:
        """The command and the last lines of its output, for messages."""
        errors = self.err.splitlines()[-40:]
        errors = ["stderr:", *errors] if errors else []
        return "\n".join([self.title, *self.lines[-40:], *errors])

    @property
    def is_silent(self) -> bool:
        """Whether every process has closed its output."""
        return not any(reader.is_alive() for reader in self._readers)

    def wait(self, limit: float = LIMIT) -> int:
        """Wait until its output has ended too; returns the exit status. After `limit` seconds, kill
        everything and raise UserError."""
        end = time.monotonic() + limit
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(limit)
            for reader in self._readers:
                reader.join(max(0, end - time.monotonic()))
            if self.is_silent:
                return self.process.returncode
        self.kill()
        raise UserError(f"still running after {limit:.0f} s: {self.tail}")

    def wait_for(self, pattern: str, since: int = 0, limit: float = LIMIT) -> int:
        """Wait until a line, from number `since` on, matches. Returns the next line's number.

        Raises UserError if the output ends first, or after `limit` seconds.
        """
        end, ended = time.monotonic() + limit, False
        with self._changed:
            while not ended:
                ended = self.is_silent or time.monotonic() > end
                for number in range(since, len(self.lines)):
                    if re.search(pattern, self.lines[number]):
                        return number + 1
                since = len(self.lines)
                self._changed.wait(0 if ended else 0.2)
        raise UserError(f"no line matched {pattern!r}: {self.tail}")

    def tree(self) -> list[psutil.Process]:
        """The command's process and its descendants, in the order of their start."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = [self._root, *self._root.children(recursive=True)]
            return sorted(found, key=lambda process: (process.create_time(), process.pid))
        return []

    def alive(self) -> list[psutil.Process]:
        """All running processes that it has started, in any session."""
        return [process for process in {*self.tree(), *marked(self.mark)} if _works(process)]

    def kill(self) -> list[psutil.Process]:
        """SIGKILL all of these. Returns those that were still alive."""
        found = kill(self.alive)
        self.process.wait(60)
        atexit.unregister(self.kill)
        for reader in self._readers:
            reader.join(10)
        return found


def run(words, limit: float = LIMIT, **options) -> Process:
    """Run a command to its end: a `Process` whose `status` is the exit status."""
    with Process(words, **options) as process:
        process.status = process.wait(limit)
    return process


def stop(processes: list[Process], grace: float = 40):
    """SIGTERM, then SIGKILL for the rest. torchrun passes SIGTERM on and gives its workers 30 s."""
    for process in processes:
        process.process.terminate()
    end = time.monotonic() + grace
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.process.wait(max(0, end - time.monotonic()))
        process.kill()


_reserved = collections.deque(maxlen=64)


def free_port() -> int:
    """A port on which a server of this machine can listen. The system gives it to no other program
    until this one ends or has asked for 64 more."""
    holder = socket.socket()  # never listens, so a second socket may, if it reuses addresses
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("localhost", 0))
    _reserved.append(holder)
    return holder.getsockname()[1]


def marked(mark: str) -> list[psutil.Process]:
    """All processes with this mark, or with one below it."""
    return [process for process in psutil.process_iter() if _has(process, mark)]


def _has(process, mark):
    try:
        return f"{process.environ().get(MARK)}/".startswith(f"{mark}/")
    except psutil.Error:  # it has ended, or belongs to another user
        return False


def _works(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill(find: Callable[[], list[psutil.Process]]) -> list[psutil.Process]:
    """SIGKILL all that `find` finds, until it finds no more and they are gone. Returns them."""
    quiet, killed, end = 0, set(), time.monotonic() + 60
    while quiet < 2 and time.monotonic() < end:  # again: they may have started others meanwhile
        killed |= (found := {*find()})
        # Once is not enough: a process has no mark during its exec, nor while it exits, which may
        # take a while on a busy machine.
        quiet = 0 if found or any(map(_works, killed)) else quiet + 1
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.01)
    return list(killed)

"""Start commands in a clean environment, read their lines, and end everything they started.

    with Process(["torchrun", ...], cwd=folder) as process:
        process.wait_for(r"Epoch +3")      # a line of its output
        status = process.wait()            # every wait has a limit

ddp_doctor/descendants.py finds and ends what a command has started.
"""

import collections
import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "doctor"))  # where it is not installed
from ddp_doctor.descendants import (
    MARK,
    OURS,
    Command,
    ended_with_us,
    kill,
    marked,
    psutil,
)
from tools.errors import UserError

__all__ = [
    "FOREVER", "LIMIT", "MARK", "OURS", "Process", "ended_with_us", "environment", "free_port",
    "kill", "marked", "psutil", "run", "stop",
]  # fmt: skip
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


class Process(Command):
    """A command in its own session. `lines` and `err` grow while it runs.

    `env` is its whole environment. `say` gets each line. stderr is part of the output, unless
    `options`, which go to Popen, have `stderr=PIPE`.
    """

    def __init__(self, words, cwd=None, env=None, say=lambda line: None, **options):
        self.lines, self.err, self._say = [], "", say
        self._changed = threading.Condition()
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
        env = environment() if env is None else env
        super().__init__(words, cwd, env, text=True, errors="replace", **options)
        streams = {self._read_out: self.process.stdout, self._read_err: self.process.stderr}
        reads = [read for read, stream in streams.items() if stream]
        self._readers = [threading.Thread(target=read, daemon=True) for read in reads]
        for reader in self._readers:
            reader.start()

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

    def kill(self) -> list[psutil.Process]:
        """SIGKILL all that it has started. Returns those that were still alive."""
        found = super().kill()
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

"""Start a command, and find and end everything that it has started, in any session.

A process group does not hold everything: torchrun gives each worker its own session. But every
child inherits the environment, so this module puts a mark there and finds all children by it. Marks
nest like paths: ending a command also ends the commands that it started with this module.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

try:
    import psutil
except ImportError:
    print(f"{sys.executable} has no psutil: source .venv/bin/activate, try again", file=sys.stderr)
    sys.exit(2)

MARK = "STARTED_BY"
OURS = f"{os.environ.get(MARK, '')}/{uuid.uuid4().hex[:12]}"  # above the marks of all we start


class Command:
    """A command in its own session. `options` go to Popen; stdin is empty by default."""

    def __init__(self, words, cwd=None, env=None, **options):
        words, self.mark = [str(word) for word in words], f"{OURS}/{uuid.uuid4().hex[:12]}"
        env = dict(os.environ) if env is None else env
        self.process = subprocess.Popen(
            words, cwd=cwd, env={**env, MARK: self.mark}, start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )  # fmt: skip
        atexit.register(self.kill)
        self._root = psutil.Process(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

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
        return found


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


@contextlib.contextmanager
def ended_with_us(folder):
    """Meanwhile, if this process is killed, another ends all that it has started, and removes
    `folder`."""
    words = [sys.executable, "-m", "ddp_doctor.descendants", OURS, folder]
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen(words, cwd=root, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            yield
        finally:
            guard.kill()


if __name__ == "__main__":
    sys.stdin.read()  # ends with the process that writes it
    kill(lambda: marked(sys.argv[1]))
    shutil.rmtree(sys.argv[2], ignore_errors=True)

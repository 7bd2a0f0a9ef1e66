"""A stage, started as its page says: by the documented launcher, with the reader's arguments."""

import contextlib
import importlib.util
import os
import queue
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .model import parse_command
from .source import SeriesError
from .stages import Stage


@dataclass(frozen=True)
class Command:
    """`words` to run on a node (a folder below the current one), or on this machine."""

    words: list[str]
    env: dict[str, str]
    node: str | None = None


@contextlib.contextmanager
def script(stage: Stage) -> Iterator[Path]:
    """The stage's script in a folder that lasts as long as the context."""
    with tempfile.TemporaryDirectory(prefix="series-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, stage.file)
        path.write_text(stage.source.text, encoding="utf-8")
        yield path


def run(stage: Stage, args: list[str]) -> int:
    """Run a stage in the current folder, its output on the terminal. Returns the exit status.

    A command for several nodes starts as many on this machine, in folders node0, node1, ...
    """
    with script(stage) as path:
        found = commands(stage, path, args)
        if len(found) > 1:
            status, _ = capture(found, Path.cwd(), say=lambda line: print(line, flush=True))
            return status
        process = subprocess.Popen(found[0].words, env=os.environ | found[0].env)
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the process has been sent it, too
                return process.wait()


def commands(
    stage: Stage, path: Path, args: list[str], processes: int | None = None, fixed: bool = False
) -> list[Command]:
    """The documented command for the script at `path`: one for each node that it is meant for.

    `processes` per node and `args` take the place of the documented ones. `fixed` makes node0
    that of rank 0; otherwise the nodes agree on their ranks, as documented.
    """
    if importlib.util.find_spec("torch") is None:
        raise SeriesError(f"{sys.executable} has no torch: source .venv/bin/activate, then again")
    env, words = parse_command(stage.run)
    place = next((i for i, word in enumerate(words) if word.endswith(".py")), None)
    if place is None:
        raise SeriesError(f"{stage.name} cannot be run alone: {stage.run!r} names no script")
    launcher, flags = words[0], words[1:place]
    words = [str(path), *(args or words[place + 1 :])]
    root = str(stage.lesson.root.resolve())
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    if launcher != "torchrun":
        env |= {"NPROC": str(processes)} if processes else {}
        return [Command([sys.executable, *flags, *words], env)]
    if processes:
        flags = _with(flags, "nproc_per_node", processes)
    nodes = int(next((f.partition("=")[2] for f in flags if f.startswith("--nnodes=")), 1))
    launcher = [sys.executable, "-m", "torch.distributed.run"]
    if nodes == 1:
        return [Command([*launcher, *flags, *words], env)]
    port = _free_port()
    if fixed:
        flags = [flag for flag in flags if not flag.startswith("--rdzv-")]
        flags += ["--master-addr=localhost", f"--master-port={port}"]
    else:
        flags = _with(flags, "rdzv-endpoint", f"localhost:{port}")
    return [
        Command([*launcher, *flags, *[f"--node-rank={n}"] * fixed, *words], env, f"node{n}")
        for n in range(nodes)
    ]


def _with(flags, name, value):
    return [f"--{name}={value}" if flag.startswith(f"--{name}=") else flag for flag in flags]


def _free_port():
    """Below those that the system hands out, so that no program is given it meanwhile."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex(("localhost", port)) != 0:
                return port


def capture(
    commands: list[Command],
    folder: Path,
    say: Callable[[str], object] = lambda line: None,
    limit: float = float("inf"),
    until: str | None = None,
) -> tuple[int, str]:
    """Run commands side by side, below `folder`. Returns the first failed status (or 0) and what
    all have printed, each line marked with its node; `say` gets the lines as they come.

    All are ended when one has failed, after `limit` seconds, or at a line in which `until` is
    found. Raises SeriesError at the limit.
    """
    lines, printed, running = queue.Queue(), [], []
    end = time.monotonic() + limit
    try:
        for command in commands:
            running.append(_start(command, folder, lines))
        unread = len(running)
        while unread:
            if time.monotonic() > end:
                tail = "\n".join(printed[-20:])
                raise SeriesError(f"still running after {limit:.0f} s, so it was ended:\n{tail}")
            try:
                line = lines.get(timeout=0.2)
            except queue.Empty:
                if any(process.poll() for process in running):
                    break
                continue
            if line is None:
                unread -= 1
                continue
            printed.append(line)
            say(line)
            if until and re.search(until, line):
                break
        else:
            for process in running:
                process.wait()
    finally:
        statuses = [process.poll() for process in running]
        _end(running)
    while True:  # what the others said while they were ended
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            break
        if line is not None:
            printed.append(line)
    return next((status for status in statuses if status), 0), "\n".join(printed)


def _start(command, folder, lines):
    folder = folder / (command.node or "")
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen(
        command.words, cwd=folder, env=os.environ | command.env, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    mark = f"{command.node} | " if command.node else ""

    def read():
        for line in process.stdout:
            lines.put(mark + line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return process


def _end(running):
    """SIGTERM, which torchrun passes on to its workers; SIGKILL for what stays."""
    for process in running:
        process.terminate()
    for process in running:
        try:
            process.wait(40)  # torchrun gives its workers 30 s
        except subprocess.TimeoutExpired:
            process.kill()

"""Run a stage as its page says: with the documented launcher and the reader's arguments."""

import contextlib
import importlib.util
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import UserError

from . import probe
from .model import parse_command
from .stages import Stage


@dataclass(frozen=True)
class Command:
    """`words` to run on a node (a folder below the current one), or on this machine."""

    words: list[str]
    env: dict[str, str]
    node: str | None = None


@contextlib.contextmanager
def script(stage: Stage) -> Iterator[Path]:
    """The stage's script in a folder that lasts as long as the context.

    If the stage is started as a module, the folder has a copy of its package, with the stage in
    place of the lesson.
    """
    with tempfile.TemporaryDirectory(prefix="series-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, stage.file)
        if module(stage):
            path = Path(folder, stage.lesson.file)
            package = (stage.lesson.root / stage.lesson.file).parent
            shutil.copytree(package, path.parent, ignore=shutil.ignore_patterns("__pycache__"))
        path.write_text(stage.source.text, encoding="utf-8")
        yield path


def module(stage: Stage) -> str | None:
    """The module that starts the stage, as in `-m mingpt.main`; None for a script."""
    words = parse_command(stage.run)[1]
    return words[words.index("-m") + 1] if "-m" in words else None


def watch(commands: list[Command], folder: Path):
    """Let torch load the probe in all processes of the commands, by a file in `folder`."""
    tools = Path(__file__).resolve().parents[2]
    entry = folder / "series_probe-0.dist-info" / "entry_points.txt"
    entry.parent.mkdir(exist_ok=True)
    entry.write_text(f"[torch.backends]\nseries_probe = {probe.__name__}:watch\n")
    for command in commands:
        paths = [str(folder), command.env["PYTHONPATH"], str(tools)]  # the last one has the probe
        command.env["PYTHONPATH"] = os.pathsep.join(paths)


def run(stage: Stage, args: list[str], watched: bool = False) -> int:
    """Run a stage in the current folder, its output on the terminal. Returns the exit status.

    A command for several nodes starts as many on this machine, in folders node1, node2, ...
    If `watched`, each process prints two lines of the probe when it ends. Raises UserError for an
    option that only a later edit uses.
    """
    given = {word.partition("=")[0].strip("-").replace("-", "_") for word in args}
    for number, later in enumerate(stage.lesson.edits[stage.number :], stage.number + 1):
        for option in given.intersection(later.options):
            raise UserError(
                f"{stage.name} makes no use of --{option}: {stage.lesson.name}@{number} does "
                f"({later.title})"
            )
    with script(stage) as path:
        found = commands(stage, path, args)
        if watched:
            watch(found, path.parent)
        if len(found) > 1:
            status, _ = capture(found, Path.cwd(), say=lambda line: print(line, flush=True))
            return status
        process = subprocess.Popen(found[0].words, env=os.environ | found[0].env)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # pass it on to the launcher
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # the process got it too, and ends
                return process.wait()


def commands(stage: Stage, path: Path, args: list[str], fixed: bool = False) -> list[Command]:
    """The documented command for the script at `path`, one per node.

    `args`, if there are any, replace the documented ones. With `fixed`, node1 has rank 0; otherwise
    the nodes agree on their ranks, as documented.
    """
    if importlib.util.find_spec("torch") is None:
        raise UserError(f"{sys.executable} has no torch: source .venv/bin/activate, then again")
    env, words = parse_command(stage.run)
    place = next(i for i, word in enumerate(words) if word == "-m" or word.endswith(".py"))
    launcher, flags = words[0], words[1:place]
    paths = [str(stage.lesson.root.resolve()), os.environ.get("PYTHONPATH")]
    if module(stage):
        paths.insert(0, str(path.parents[len(Path(stage.lesson.file).parts) - 1]))
        env["PYTHONSAFEPATH"] = "1"  # or Python would import the current folder's package
        words = ["-m", module(stage), *(args or words[place + 2 :])]
        if not stage.is_last and "--checkpoint_path" not in words:
            words += ["--checkpoint_path", f"{stage.lesson.name}_{stage.number}.pt"]
    else:
        words = [str(path), *(args or words[place + 1 :])]
    env["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    if "REPLICA_GROUP_ID" in env:  # started one by one, with another process that they need
        lab = stage.lesson.root / "docs" / "labs" / "groups.py"
        return [Command([sys.executable, str(lab), *words[1:]], env)]
    if launcher != "torchrun":
        return [Command([sys.executable, *flags, *words], env)]
    env.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))  # or torchrun warns
    nodes = int(next((f.partition("=")[2] for f in flags if f.startswith("--nnodes=")), 1))
    launcher = [sys.executable, "-m", "torch.distributed.run"]
    if nodes == 1:
        return [Command([*launcher, *flags, *words], env)]
    from tools.processes import free_port

    port = free_port()
    if fixed:
        flags = [flag for flag in flags if not flag.startswith("--rdzv-")]
        flags += ["--master-addr=localhost", f"--master-port={port}"]
    else:
        flags = [*flags, f"--rdzv-endpoint=localhost:{port}"]  # of two, the last one counts
    return [
        Command([*launcher, *flags, *[f"--node-rank={n}"] * fixed, *words], env, f"node{n + 1}")
        for n in range(nodes)
    ]


def capture(
    commands: list[Command],
    folder: Path,
    say: Callable[[str], object] = lambda line: None,
    limit: float = float("inf"),
    until: str | None = None,
) -> tuple[int, str]:
    """Run commands side by side, below `folder`. Returns the first failed status (or 0) and all
    output, each line marked with its node; `say` gets the lines as they come.

    Ends all when one fails, after `limit` seconds, or at a line in which `until` is found. Raises
    UserError at the limit.
    """
    from tools.processes import stop  # needs psutil, which the series itself does not

    lines, printed, running = queue.Queue(), [], []
    end = time.monotonic() + limit
    try:
        for command in commands:
            running.append(_start(command, folder, lines.put))
        while True:
            if time.monotonic() > end:
                tail = "\n".join(printed[-20:])
                raise UserError(f"still running after {limit:.0f} s, so it was ended:\n{tail}")
            ended = all(one.is_silent and one.process.poll() is not None for one in running)
            try:
                line = lines.get(timeout=0 if ended else 0.1)
            except queue.Empty:
                if ended or any(one.process.poll() for one in running):
                    break
                continue
            printed.append(line)
            say(line)
            if until and re.search(until, line):
                break
    finally:
        statuses = [one.process.poll() for one in running]
        stop(running)
    while not lines.empty():  # what the others printed while they were ended
        printed.append(lines.get())
    return next((status for status in statuses if status), 0), "\n".join(printed)


def _start(command, folder, put):
    from tools.processes import Process, environment

    folder = folder / (command.node or "")
    folder.mkdir(exist_ok=True)
    mark = f"{command.node} | " if command.node else ""
    return Process(
        command.words, folder, environment(**command.env), lambda line: put(f"{mark}{line}")
    )

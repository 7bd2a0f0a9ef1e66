"""Run shell lines in a copy of the scripts, and return what they printed.

    for ran in shell.run(["python multigpu.py 5 1"]):
        print(ran.line, ran.status, ran.seconds, ran.output)

The lines of one call run one after the other in one new folder with copies of the scripts, as in a
fresh clone of the repository. Then the folder is deleted and remaining processes are killed, even
if this process is killed first.
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools import processes
from tools.series import own

ROOT = Path(__file__).resolve().parents[2]
COPIED = ["*.py", "lessons.toml", "LICENSE", "docs/*.py", "docs/labs/*", "docs/recorded/*",
          "docs/port/*", "docs/theory/*", "docs/symptoms/*", "mingpt/*", "parallel/**/*",
          "beyond/*", "launch/*", "tools/*.py", "tools/series/*", "tools/cluster/*",
          "tools/bench/results/*", "doctor/**/*", "workshop/**/*"]  # fmt: skip
BUILDS = re.compile("MPLBACKEND|PAGES_BUILD|PYTHON.*")  # variables
LOCK = threading.Lock()
# torchrun sets OMP_NUM_THREADS for several workers, and says so each time.
NOTICE = r"(?m)^W\d+ \S+ \d+ torch/distributed/run\.py:\d+\] (\**|Setting OMP_NUM_THREADS.*)\n"
COLUMNS = 100  # of the terminal that the commands see


@dataclass(frozen=True)
class Ran:
    """A line that has run. `output` is stdout and stderr as they came."""

    line: str
    output: str
    status: int
    seconds: float


def run(lines: Iterable[str], timeout: float = 60) -> list[Ran]:
    """Run the lines by bash until one fails. Raises UserError after `timeout` seconds a line."""
    ran = []
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        copy(COPIED, Path(folder))
        for line in lines:
            ran.append(_run(line, folder, timeout))
            if ran[-1].status:
                break
    return ran


def copy(patterns: Iterable[str], folder: Path):
    """Copy those of the project's files that match a pattern."""
    for path in filter(own(ROOT), (path for pattern in patterns for path in ROOT.glob(pattern))):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def _folder():
    with LOCK:
        return _watched_folder()


@functools.cache
def _watched_folder():
    """A folder for all runs. A second process waits until this one ends, then deletes the folder
    and kills what still runs, because a SIGKILL would leave this process no time for that."""
    folder = tempfile.mkdtemp(prefix="pages-")
    end, _ = os.pipe()  # the other end stays open for as long as this process lives
    command = [sys.executable, "-m", __spec__.name, processes.OURS, folder]
    # Without a mark, so that killing this process by its mark spares the watcher.
    env = {name: value for name, value in os.environ.items() if name != processes.MARK}
    top = Path(__file__).parents[2]
    pipes = {"stdin": end, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(command, cwd=top, env=env, **pipes, start_new_session=True)
    os.close(end)
    return folder


def _run(line, folder, timeout):
    with tempfile.TemporaryDirectory(dir=_folder()) as temporary:
        start = time.monotonic()
        words = ["bash", "-o", "pipefail", "-c", line]
        with processes.Process(words, cwd=folder, env=_environment(temporary)) as process:
            process.title = line
            status = process.wait(timeout)
        seconds = time.monotonic() - start
    output = _without_places(process.out.replace(temporary, "/tmp"), folder)
    return Ran(line, output, status, round(seconds, 1))


def _environment(temporary):
    """A reader's variables: none of a launcher or a build, and our Python first on PATH."""
    quick = str(Path(__file__).resolve().parents[1] / "quick")
    ours = {"TMPDIR": temporary, "COLUMNS": str(COLUMNS)}
    ours["OMP_WAIT_POLICY"] = "passive"  # threads without work leave the cores to other commands
    inherited = processes.environment(**ours)
    kept = {name: value for name, value in inherited.items() if not BUILDS.fullmatch(name)}
    return kept | {"PYTHONPATH": quick}


def _without_places(output, folder):
    """Remove the folders of the run and of packages, which mean nothing to a reader, and NOTICE."""
    for place in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
        output = output.replace(f"{place}/", "").replace(place, ".")
    for prefix in (sys.prefix, os.path.realpath(sys.prefix)):  # .venv may be a link
        output = re.sub(re.escape(prefix) + r"/lib/python[\d.]+/site-packages/", "", output)
        output = output.replace(f"{prefix}/bin/", "")
    output = re.sub(re.escape(sys.base_prefix) + r"/lib/python[\d.]+/", "", output)
    return re.sub(NOTICE, "", output)


if __name__ == "__main__":  # see _watched_folder
    sys.stdin.read()
    processes.kill(lambda: processes.marked(sys.argv[1]))
    shutil.rmtree(sys.argv[2], ignore_errors=True)

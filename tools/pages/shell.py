"""Shell lines run in a copy of the scripts, and what they printed.

    for ran in shell.run(["python multigpu.py 5 1"], cache=folder):
        print(ran.line, ran.status, ran.seconds, ran.output)

The lines of one call run one after the other in one new folder that holds copies of the scripts,
as if a reader had just cloned the repository; what they leave there is deleted, and the processes
that they leave are killed, even if this process is killed first. Their output is kept in `cache`
under a hash of the lines and of every file they depend on.
"""

import ast
import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from tools.series import own

ROOT = Path(__file__).resolve().parents[2]
COPIED = ["*.py", "lessons.toml", "docs/*.py", "docs/labs/*", "docs/theory/*", "docs/symptoms/*",
          "mingpt/*", "launch/*", "tools/series/*", "tools/bench/results/*",
          "workshop/**/*"]  # fmt: skip
OURS = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|NPROC"
    r"|OMP_NUM_THREADS|MPLBACKEND|PAGES_RUNS|PYTHON.*"
)
LOCK = threading.Lock()
COLUMNS = 100  # of the terminal that the commands see


class ShellError(Exception):
    """A line that did not end as expected, with all that it printed."""


@dataclass(frozen=True)
class Ran:
    """A line that has run. `output` is stdout and stderr as they came."""

    line: str
    output: str
    status: int
    seconds: float


def succeeded(ran: list[Ran]) -> bool:
    """Whether no line has failed."""
    return not ran[-1].status


def run(
    lines: list[str], timeout: float = 60, cache: Path | None = None, keep=succeeded
) -> list[Ran]:
    """Run the lines by bash until one fails. Raises ShellError after `timeout` seconds a line.

    What `keep` says no to is not cached: what went wrong by chance is tried again.
    """
    kept = cache / f"{_key(lines)}.json" if cache else None
    if kept and kept.exists():
        return [Ran(**fields) for fields in json.loads(kept.read_text())]
    ran = []
    with tempfile.TemporaryDirectory(dir=_folder()) as folder:
        copy(COPIED, Path(folder))
        for line in lines:
            ran.append(_run(line, folder, timeout))
            if ran[-1].status:
                break
    if kept and keep(ran):
        cache.mkdir(parents=True, exist_ok=True)
        fresh = cache / f".{kept.name}.{uuid.uuid4().hex}"
        fresh.write_text(json.dumps([asdict(one) for one in ran], indent=1))
        os.replace(fresh, kept)
    return ran


def dependencies(lines: list[str]) -> list[Path]:
    """The project's files whose text may change what the lines print."""
    is_own, found, waiting = own(ROOT), set(), _named(" ".join(lines))
    while waiting:
        file = waiting.pop()
        if file not in found and is_own(file):
            found.add(file)
            waiting += _imported(file) if file.suffix == ".py" else []
    return sorted(found)


def _key(lines):
    facts = [*lines, sys.version]
    for package in ("torch", "numpy"):
        try:
            facts.append(version(package))
        except PackageNotFoundError:
            facts.append("none")
    files = [*dependencies(lines), Path(__file__)]
    facts += [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]


def _named(text):
    """The paths that a line may mean; and all that tools/series reads, where it runs that."""
    named = [ROOT / word for word in re.findall(r"[\w./-]+", text) if word[0] != "/"]
    for module in re.findall(r"-m +([\w.]+)", text):
        path = ROOT / module.replace(".", "/")
        named += [path.with_suffix(".py"), *path.rglob("*.py"), *path.rglob("*.toml")]
        if module in ("tools.series", "workshop"):
            named += [ROOT / "lessons.toml", *ROOT.glob("*.py")]
    return named


def _imported(file):
    """The paths that the imports of a file may mean, packages on the way included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        folders, names = [file.parent, ROOT], []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folders = [file.parents[node.level - 1]] if node.level else folders
            names = [f"{node.module or ''}.{alias.name}".strip(".") for alias in node.names]
        for folder, parts in itertools.product(folders, [name.split(".") for name in names]):
            for end in range(1, len(parts) + 1):
                place = folder.joinpath(*parts[:end])
                found |= {place.with_suffix(".py"), place / "__init__.py"}
    return found


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
    """A folder for all that runs here. A second process waits for the end of this one, then deletes
    the folder and kills what still runs: SIGKILL leaves this process no time for that."""
    folder = tempfile.mkdtemp(prefix="pages-")
    end, _ = os.pipe()  # the other end stays open for as long as this process lives
    command = [sys.executable, "-m", __spec__.name, folder]
    top = Path(__file__).parents[2]
    null = subprocess.DEVNULL
    subprocess.Popen(command, cwd=top, stdin=end, stdout=null, stderr=null, start_new_session=True)
    os.close(end)
    return folder


def _run(line, folder, timeout):
    with tempfile.TemporaryDirectory(dir=_folder()) as mark:
        start = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=folder,
            env=_environment(mark) | {"PAGES_RUN": mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _kill(mark)
            output, _ = process.communicate(timeout=60)
            raise ShellError(f"still running after {timeout:.0f} s: {line}\n{output}") from None
        finally:
            _kill(mark)
        seconds = time.monotonic() - start
    output = _without_places(output.replace(mark, "/tmp"), folder)
    return Ran(line, output, process.returncode, round(seconds, 1))


def _environment(temporary):
    """The reader's: none of a launcher's or a build's variables, and our Python first on PATH."""
    inherited = {name: value for name, value in os.environ.items() if not OURS.fullmatch(name)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    quick = str(Path(__file__).resolve().parents[1] / "quick")
    ours = {"PATH": path, "PYTHONPATH": quick, "TMPDIR": temporary, "COLUMNS": str(COLUMNS)}
    ours["OMP_WAIT_POLICY"] = "passive"  # threads without work leave the cores to other commands
    return inherited | ours


def _kill(mark):
    """SIGKILL for all that has the mark, whatever session it has moved to."""
    quiet = 0
    for _ in range(10):  # again, for what they started while we looked
        found = [process for process in psutil.process_iter() if _is_marked(process, mark)]
        quiet = 0 if found else quiet + 1
        if quiet == 2:  # once is not enough: amid its exec, a process has no environment
            break
        time.sleep(0.02 * quiet)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found, timeout=5)


def _is_marked(process, mark):
    try:
        return f"{process.environ().get('PAGES_RUN')}/".startswith(f"{mark}/")
    except psutil.Error:  # ended meanwhile, or not ours to look at
        return False


def _without_places(output, folder):
    """Where the run and the packages happened to lie says nothing to a reader."""
    for place in sorted({folder, os.path.realpath(folder)}, key=len, reverse=True):
        output = output.replace(f"{place}/", "").replace(place, ".")
    output = re.sub(re.escape(sys.prefix) + r"/lib/python[\d.]+/site-packages/", "", output)
    output = re.sub(re.escape(sys.base_prefix) + r"/lib/python[\d.]+/", "", output)
    return output.replace(f"{sys.prefix}/bin/", "")


if __name__ == "__main__":  # see _watched_folder
    sys.stdin.read()
    _kill(sys.argv[1])
    shutil.rmtree(sys.argv[1], ignore_errors=True)

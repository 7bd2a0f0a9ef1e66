"""The notebooks of the site run to their end in an empty folder, and write nowhere else."""

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import ROOT
from tests.site import SITE, built

NOTEBOOKS = {  # of the pages; those of the workshop are tested in test_exercises.py
    path.stem: path
    for path in sorted(SITE.glob("_downloads/**/*.ipynb"))
    if not path.stem.startswith("exercises_")
}
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not NOTEBOOKS, reason="the site is not built: make docs"),
]
# Half a minute to six each; what they run, `make docs` has just run.
LONG = {name: pytest.mark.soak for name in NOTEBOOKS if name != "0_intro"}
CELL, ALL = 300, 1500  # seconds; bounds on hangs, not measures of speed
AT_ONCE = 2
EXECUTE = f"""
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    nbclient.NotebookClient(notebook, timeout={CELL}, kernel_name="python3").execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""


def execute(path, folder):
    """Run a notebook in `folder`/here: its exit status, its output, the processes it left."""
    psutil = pytest.importorskip("psutil")
    for name in ("here", "home", "tmp"):
        (folder / name).mkdir()
    shutil.copy(path, folder / path.name)
    mark = uuid.uuid4().hex
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    environment = kept | {
        "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "NOTEBOOK_RUN": mark,
        "IPYTHONDIR": str(folder / "home" / "ipython"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", EXECUTE, str(folder / path.name)], cwd=folder / "here",
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip

    def ours():
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # ended meanwhile, or not ours to look at
                if process.environ().get("NOTEBOOK_RUN") == mark:
                    yield process

    def end():
        for process in (left := list(ours())):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return [process.pid for process in left]

    try:
        output, _ = process.communicate(timeout=ALL)
        return process.returncode, output, end()
    except subprocess.TimeoutExpired:
        end()
        return None, f"still running after {ALL} s", []
    finally:
        end()


def state_of_the_repository():
    """Every file but git's, the environment's and what Python and pytest keep for themselves."""
    own = {".git", ".venv", "__pycache__", ".pytest_cache", ".ruff_cache"}
    state = {}
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name not in own]
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(os.path.join(folder, file))
                state[os.path.join(folder, file)] = found.st_size, found.st_mtime_ns
    return state


@pytest.fixture(scope="module")
def executions(request, tmp_path_factory):
    """For each notebook to be tested what `execute` will return, two of them at a time."""
    items = [item for item in request.session.items if item.path == request.path]
    names = [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]
    folders = {name: tmp_path_factory.mktemp(name.replace(".", "-")) for name in names}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: (pool.submit(execute, NOTEBOOKS[name], folders[name]), folders[name])
            for name in names
        }


@pytest.fixture(scope="module")
def before():
    return state_of_the_repository()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG.get(name, ())) for name in built(list(NOTEBOOKS))]
)
def test_a_notebook(before, executions, name):
    future, folder = executions[name]
    status, output, left = future.result(ALL * len(NOTEBOOKS))
    assert status == 0, output[-6000:]
    assert not left, f"{len(left)} processes were left running"
    assert sorted(path.name for path in (folder / "here").iterdir()) == ["distributed-pytorch"]
    known = {".cache", ".config", ".local", ".ipython", "ipython"}  # matplotlib's, jupyter's
    assert {path.name for path in (folder / "home").iterdir()} <= known


def test_the_repository_is_as_it_was(before, executions):
    for future, _ in executions.values():
        future.result(ALL * len(NOTEBOOKS))
    after = state_of_the_repository()
    assert {path for path in before | after if before.get(path) != after.get(path)} == set()

"""python -m workshop ready: says so on a good machine, and otherwise names what is wrong."""

import os
import subprocess
import sys

import pytest

from tests.processes import LIMIT, ROOT
from tools.pages import shell
from tools.processes import Process, environment

IMPORT = "import workshop"


@pytest.fixture
def clone(tmp_path):
    """A clone of the repository, whose learner runs `ready`: `(status, output)`."""
    root = tmp_path / "clone"
    shell.copy([*shell.COPIED, "pyproject.toml"], root)
    who = ["-c", "user.name=test", "-c", "user.email=test"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "All"]):
        subprocess.run(["git", *words], cwd=root, check=True)

    def ready(folder=tmp_path / "mine", command="ready", **env):
        words = [sys.executable, "-m", "workshop", "--dir", folder, command]
        with Process(words, cwd=root, env=environment(**env)) as process:
            status = process.wait(LIMIT)
            assert not process.alive() and "Traceback" not in process.out, process.out
        return status, process.out

    ready.root = root
    return ready


def test_all_that_is_wrong_is_named_and_what_needs_it_is_not_tried(clone, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "torch.py").write_text("raise ImportError('damaged')\n")
    (clone.root / "utils.py").unlink()
    with open(clone.root / "multigpu.py", "a") as script:
        script.write("print()\n")
    status, output = clone(tmp_path / "file", PYTHONPATH=str(tmp_path))
    assert status == 1, output
    assert f"✗ folder: {tmp_path / 'file'} cannot be written" in output
    line = "✗ torch: it cannot be imported (ImportError: damaged): `unset PYTHONPATH`"
    assert line in output
    assert "· check: not tried" in output
    assert "multigpu.py, utils.py changed since the clone: `git checkout multigpu.py u" in output
    assert output.endswith("\nnot ready: scripts, folder, torch. Fix scripts first\n")


def test_processes_that_cannot_meet(clone, tmp_path):
    status, output = clone(GLOO_SOCKET_IFNAME="nonexistent")
    assert status == 1 and "✗ torchrun: two processes cannot meet (RuntimeError: " in output, output
    assert ": `unset GLOO_SOCKET_IFNAME`, which is nonexistent\n" in output
    log = (tmp_path / "mine" / "progress.jsonl").read_text()
    assert '"event": "ready", "wrong": ["torchrun"]' in log


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-c", f"import sys; sys.version_info = (3, 10, 9); {IMPORT}"], "needs 3.11 or newer"),
        (["-S", "-c", IMPORT], "lacks what `make run` installs"),  # -S: without .venv's packages
    ],
)
def test_a_python_other_than_the_venvs_is_refused_in_one_line(words, told):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [sys.executable, *words]
    ran = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
    assert ran.returncode == 1 and told in ran.stderr
    assert len(ran.stderr.splitlines()) == 1

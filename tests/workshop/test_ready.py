"""python -m workshop ready: says so on a good machine, and otherwise names what is wrong."""

import os
import subprocess
import sys

import pytest

from tests.processes import LIMIT, ROOT
from tools.pages import shell
from tools.processes import Process, environment


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


def test_a_good_clone_is_ready_and_the_room_sees_it(clone, tmp_path):
    status, output = clone()
    assert status == 0 and output.endswith("\nready\n"), output
    assert output.count("✓") == 7, output
    words = [sys.executable, "-m", "workshop", "report", tmp_path / "mine"]
    room = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT).stdout
    assert f"{tmp_path / 'mine'}  yes      0/" in room, room


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


def test_processes_that_wait_for_ever_are_ended(clone):
    """`clone` asserts that none is left."""
    (clone.root / "launch" / "hello.py").write_text("import time\n\ntime.sleep(3000)\n")
    status, output = clone()
    assert status == 1 and "two processes cannot meet (they wait)" in output, output


def test_an_old_python_is_refused_in_one_line():
    code = "import sys; sys.version_info = (3, 10, 9); import workshop"
    words = [sys.executable, "-c", code]
    ran = subprocess.run(words, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert ran.returncode == 1 and "needs 3.11 or newer" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1

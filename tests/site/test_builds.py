"""`make docs` among files that are not the project's, after a SIGKILL, and once more."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import ROOT
from tests.site import SITE

psutil = pytest.importorskip("psutil", reason="no psutil: make docs installs it")

from tools.pages import shell  # noqa: E402

pytestmark = pytest.mark.site

RUNS = "docs/_build/runs"
BINARY = b"\x80\x04\xff\xfe\0 not UTF-8"
PAGE = "docs/pages/2_multigpu"
BESIDE = [
    "multigpu.pt", "multigpu_torchrun.pt", "mingpt.pt", "node1/multinode.pt", "node2/multinode.pt",
    "data/a.tokens", "data/b.py", "mingpt/x.bin", "mingpt/tried.py", "beyond/tried.py", "tried.py",
    "#multigpu.py#", "multigpu.py~", "multigpu.py.orig", ".multigpu.py.swp", "lessons.toml.bak",
    "docs/notes.rst", "docs/labs/tried.py", "docs/_ext/tried.py", "docs/_static/series.css~",
    "docs/pages/notes.rst", f"{PAGE} (copy).py", f"{PAGE}.py~", f"{PAGE}.ipynb",
    "docs/pages/old/2_multigpu.py", "docs/pages/old/README.rst", "tools/series/tried.py",
    "docs/pages/.ipynb_checkpoints/2_multigpu-checkpoint.py", "workshop/checks/tried.py",
    "my-workshop/multigpu/start/multigpu.py", "tests/__pycache__/test_x.cpython-311.pyc",
    "env/pyvenv.cfg", *(f"env/lib/package{n}/module.py" for n in range(300)),
]  # fmt: skip
LINKS = [
    ".#multigpu.py", "docs/.#index.rst", "docs/pages/.#2_multigpu.py", "docs/pages/.#index.rst",
    "docs/_ext/.#run.py", "docs/_static/.#series.css", "tests/.#conftest.py", "launch/.#ssh.sh",
    "tests/cluster/.#test_x.py", "tools/series/.#lint.py", "mingpt/.#main.py", "tests/.#test_x.py",
]  # fmt: skip


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout of the project, with the runs' cache and junk all over it."""
    if not SITE.exists():
        pytest.skip("the site is not built: make docs")
    tree = tmp_path / "tree"
    shell.copy(["**/*"], tree)
    shutil.copytree(ROOT / RUNS, tree / RUNS)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tree, check=True)
    for name in BESIDE:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(BINARY)
    for name in LINKS:
        (tree / name).symlink_to("somebody@somewhere.4711")  # as emacs does for a file being edited
    (tree / os.fsdecode(b"\xff.py")).write_bytes(BINARY)
    return tree


def make_docs(tree):
    words = ["make", "docs", "bootstrap=true", f"PY={sys.executable}"]
    return subprocess.Popen(
        words, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def files(tree):
    """The files that the last build has made so far."""
    walks = [os.walk(tree / "docs" / place) for place in ("series", "_build")]
    found = {Path(folder, name) for walk in walks for folder, _, names in walk for name in names}
    return {path.relative_to(tree) for path in found}


def test_after_a_kill_and_once_more_amid_junk(tree):
    everything = len(files(ROOT))
    for moment in sorted(random.sample(range(everything), 2)):
        with make_docs(tree) as process:
            while process.poll() is None and len(files(tree)) < moment:
                time.sleep(0.01)
            print(f"SIGKILL at file {len(files(tree))} of {everything}")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    found = []
    for _ in range(2):
        with make_docs(tree) as process:
            output, _ = process.communicate(timeout=1500)
        assert process.returncode == 0, output.decode(errors="replace")
        assert f"left out, since git does not track it: {tree}/tried.py\n" in output.decode()
        found.append(files(tree))
    assert found[0] == found[1]
    assert not [name for name in found[0] if name.name in ("tried.py", "notes.rst", "series.css~")]
    for command in ("tools.series lint", "pytest -q --collect-only -m site"):
        words = [sys.executable, "-m", *command.split()]
        ran = subprocess.run(words, cwd=tree, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout + ran.stderr

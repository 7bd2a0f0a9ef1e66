"""The site's notebooks run to their end in an empty folder, and write into one folder there."""

import os
import shutil
import sys

import pytest

from tests.site import SITE
from tools.processes import Process

NOTEBOOKS = {path.stem: path for path in sorted(SITE.glob("_downloads/**/*.ipynb"))}
# Each takes half a minute to six minutes; `make docs` has just run the same commands.
LONG = {name: pytest.mark.soak for name in NOTEBOOKS if name != "0_intro"}
CELL, ALL = 300, 1500  # seconds; they catch hangs and say nothing about speed
EXECUTE = f"""
import sys
import nbclient, nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    nbclient.NotebookClient(notebook, timeout={CELL}, kernel_name="python3").execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG.get(name, ())) for name in NOTEBOOKS]
)
def test_a_notebook(name, tmp_path):
    for place in ("here", "home", "tmp"):
        (tmp_path / place).mkdir()
    notebook = shutil.copy(NOTEBOOKS[name], tmp_path)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG")}
    environment = kept | {
        "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"),
        "IPYTHONDIR": str(tmp_path / "home" / "ipython"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    words = [sys.executable, "-c", EXECUTE, notebook]
    with Process(words, cwd=tmp_path / "here", env=environment) as process:
        assert process.wait(ALL) == 0, process.out[-6000:]
        left = process.kill()
    assert not left, f"{len(left)} processes were left running"
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["distributed-pytorch"]

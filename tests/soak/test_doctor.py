"""The doctor finds nothing to change in the scripts of the series."""

import shutil
import subprocess
import sys

import pytest

from tests.processes import LESSONS, ROOT
from tools.processes import environment
from tools.series.observe import ARGS

FOLDERS = "mingpt", "parallel", "beyond"
# The first wants its nodes named, the second a lighthouse.
LEFT_OUT = {"nodes_by_hand", "without_restart"}

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("lesson", sorted({one.name for one in LESSONS} - LEFT_OUT))
def test_the_doctor_finds_nothing(lesson, tmp_path):
    for path in (*ROOT.glob("*.py"), *(ROOT / name for name in FOLDERS)):
        copy = shutil.copytree if path.is_dir() else shutil.copyfile
        copy(path, tmp_path / path.name)
    _, words = LESSONS[lesson].command
    begin = next(n for n, word in enumerate(words) if word == "-m" or word.endswith(".py"))
    end = begin + (2 if words[begin] == "-m" else 1)
    flags = ["--standalone", "--nproc_per_node=2"] if words[0] == "torchrun" else []
    args = [word.format(root=ROOT) for word in LESSONS[lesson].observe] or ARGS
    ran = subprocess.run(
        [sys.executable, "-m", "ddp_doctor", "--", words[0], *flags, *words[begin:end], *args],
        cwd=tmp_path, env=environment(OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "doctor")),
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert "0 errors, 0 warnings" in ran.stderr, ran.stdout + ran.stderr

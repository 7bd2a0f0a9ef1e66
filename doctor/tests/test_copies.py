"""Runs in copies of the folder, which they must not change, and of all that it needs."""

import subprocess
import sys

import pytest

from ddp_doctor.copies import copy
from defects.cases import CORRECT
from diagnosing import PACKAGE, diagnose, python


@pytest.mark.soak
def test_files_outside_the_folder_are_named(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside.txt"
    inside.mkdir()
    text = CORRECT.replace("    model = DDP(Model())\n", (
        f"    open({str(outside)!r}, 'w').close()\n    model = DDP(Model())\n"
    ))  # fmt: skip
    seen = python(inside, text, "--restart")
    assert seen.report["findings"] == []
    (why,) = seen.report["not examined"]
    assert why == f"files outside the folder, which both runs wrote to: {outside}"


COMMIT = ["git", "-c", "user.name=a", "-c", "user.email=b", "commit", "--allow-empty", "-qm"]


def test_a_copy_is_at_the_commit_of_its_folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").touch()
    for words in (["git", "init", "-q"], ["git", "add", "."], [*COMMIT, "First"]):
        subprocess.run(words, cwd=folder, check=True)
    copied = copy(folder, tmp_path / "copies")
    target = copied.place
    moved = copied.moved(f"--files=[{folder}/a,{folder}2/b,x{folder}]:{folder}")
    assert moved == f"--files=[{target}/a,{folder}2/b,x{folder}]:{target}"
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain"]):
        here, there = (subprocess.check_output(["git", *words], cwd=p) for p in (folder, target))
        assert here == there


@pytest.mark.soak
@pytest.mark.parametrize("part", [".", "part"])
def test_what_a_copy_commits_is_not_in_the_repository(tmp_path, part):
    root = tmp_path / "project"
    (root / part).mkdir(parents=True)
    asks = f"import subprocess\nsubprocess.run({COMMIT} + ['Second'], check=True)\n"
    for words in (["git", "init", "-q"], [*COMMIT, "First"]):
        subprocess.run(words, cwd=root, check=True)
    files = sorted((root / ".git").rglob("*"))
    seen = python(root / part, asks + CORRECT, "--restart")
    assert (seen.ran.status, seen.report["findings"]) == (0, []), seen.ran.tail
    assert sorted((root / ".git").rglob("*")) == files != []


@pytest.mark.parametrize("options", [(), pytest.param(("--restart",), marks=pytest.mark.soak)])
def test_a_line_may_be_beside_the_folder_in_its_repository(tmp_path, options):
    folder = tmp_path / "part"
    folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "beside.py").write_text("import torch\n\n\nsave = lambda *a: torch.save(*a)\n")
    for name in ("data.txt", "more.txt"):
        (tmp_path.parent / name).touch()
    (tmp_path / "settings.yaml").write_text("data: ../data.txt")
    text = CORRECT.replace('f"{PATH}.part")\n    os', "PATH)\n    # os")
    text = text.replace("torch.save(", "__import__('beside').save(")
    opens = "import sys\n[open(f'../..{name}') for name in ('/data.txt', sys.argv[1])]\n"
    text = text.replace("EPOCHS, SAVE", f"{opens}EPOCHS, SAVE")
    (folder / "train.py").write_text(text)
    path = {"PYTHONPATH": f"{tmp_path}:{PACKAGE}"}
    words = ("python", "train.py", "/more.txt", "--more=../../more.txt")
    seen = diagnose(folder, *words, options=options, **path)
    (finding,) = seen.report["findings"]
    assert (finding["rule"], finding["where"]) == ("in-place", "../beside.py:4"), seen.ran.tail


@pytest.mark.soak
def test_a_command_that_begins_with_a_python_of_the_folder(tmp_path):
    own = tmp_path / "venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    (tmp_path / "train.py").write_text(CORRECT)
    seen = diagnose(tmp_path, "venv/bin/python", "train.py", options=("--restart",))
    assert (seen.ran.status, seen.report["findings"]) == (0, []), seen.ran.tail


@pytest.mark.soak
def test_a_finished_run_that_is_started_again_is_no_error(tmp_path):
    python(tmp_path, CORRECT)
    seen = python(tmp_path, CORRECT)
    assert (seen.ran.status, seen.report["findings"]) == (0, []), seen.ran.tail
    (why,) = seen.report["not examined"]
    assert why == "the training: no step was made; has the run in checkpoint.pt ended before?"

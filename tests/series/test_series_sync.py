"""Carry a script's change to its descendants: to all of them, or to none."""

import os
import subprocess

import pytest

from tools import files, series
from tools.series.__main__ import main
from tools.series.lint import lint

OLD = "            # Summed on the device, without waiting for it.\n"
NEW = "            # Summed on the device, for speed.\n"
THREE = "beyond/three.py"
SCRIPTS = ["one.py", "two.py", THREE]


@pytest.fixture
def repo(tree, monkeypatch):
    """The good series, committed in a repository that ignores the user's git settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("GIT_DIR", raising=False)
    git(tree, "init", "--quiet")
    commit(tree)
    return tree


def git(tree, *arguments):
    subprocess.run(["git", *arguments], cwd=tree.root, check=True)


def commit(tree, *removed):
    git(tree, "add", ".")
    for file in removed:
        git(tree, "rm", "--quiet", "--cached", file)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    git(tree, *identity, "commit", "--quiet", "--message=x")


def run(tree, *arguments):
    return main(["--root", str(tree.root), "sync", *arguments])


def state(tree):
    """Every file with its text, so that a stray temporary file shows too."""
    files = [path for path in tree.root.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(tree.root)): path.read_text() for path in files}


def test_a_change_reaches_all_descendants_once_and_nothing_else(repo, capsys):
    before = state(repo)
    repo.edit("one.py", OLD, NEW)
    assert run(repo, "./one.py") == 0
    reached = "two.py: merged\nbeyond/three.py: merged\n"
    said = "now check the result: python -m tools.series lint\n"
    assert capsys.readouterr().out == reached + said
    assert state(repo) == before | {file: before[file].replace(OLD, NEW) for file in SCRIPTS}
    assert lint(series.load(repo.root)) == []
    assert run(repo, "one.py") == 0
    said = "what changed in one.py since HEAD is in all its descendants already\n"
    assert capsys.readouterr().out == said


def test_a_line_beside_those_that_the_child_has_changed_is_no_conflict(repo):
    repo.become_two(["a", "b", "c", "d"], ["a", "new", "b", "C", "d"])
    commit(repo)
    repo.become_two(["a", "b changed", "c"], ["a", "new", "b", "C", "d"])
    assert run(repo, "a") == 0
    assert repo.read("b.py") == "a\nnew\nb changed\nC\n"


def test_what_is_uncommitted_in_a_child_is_merged_not_overwritten(repo):
    repo.edit("one.py", OLD, NEW)
    repo.edit("two.py", "torch.nn.Identity()", "torch.nn.ReLU()")
    assert run(repo, "one") == 0
    # The grandchildren get both, because their parent now has both.
    for file in SCRIPTS[1:]:
        assert "torch.nn.ReLU()" in repo.read(file) and NEW in repo.read(file)


def test_in_conflict_nothing_is_written(repo, capsys):
    """Although two.py comes first and merges well."""
    repo.edit(THREE, "range(self.epochs_run, total_epochs)", "range(self.epochs_run, 9)")
    commit(repo)
    repo.edit("one.py", "for epoch in range(total_epochs)", "for epoch in range(1, total_epochs)")
    repo.edit("one.py", OLD, NEW)
    before = state(repo)
    assert run(repo, "one") == 1
    assert capsys.readouterr().out == (
        "beyond/three.py: conflict:\nit has\n        for epoch in range(self.epochs_run, 9):\n"
        "its parent has\n        for epoch in range(1, total_epochs):\n"
        "make the change there by hand, then sync one --by-hand three\nnothing is written\n"
    )
    assert state(repo) == before


def test_a_conflict_settled_by_hand_lets_the_rest_follow(repo, capsys):
    repo.edit("one.py", "    main(args)\n", "    print(1)\n    main(args)\n")
    assert run(repo, "one") == 1
    assert THREE not in capsys.readouterr().out  # it derives from the script in conflict
    repo.edit("two.py", OLD, NEW)
    by_hand = repo.read("two.py")
    assert run(repo, "one", "--by-hand", "two") == 0
    assert repo.read("two.py") == by_hand
    assert NEW in repo.read(THREE)


def test_a_failing_file_system_leaves_no_file_torn_and_no_other(repo, monkeypatch, capsys):
    def failing(source, target):
        raise OSError(28, "No space left on device")

    repo.edit("one.py", OLD, NEW)
    before = state(repo)
    monkeypatch.setattr(files.os, "replace", failing)
    assert run(repo, "one") == 2
    assert capsys.readouterr().err == "[Errno 28] No space left on device\n"
    assert state(repo) == before


def test_a_script_that_is_not_committed_has_no_base(repo, capsys):
    commit(repo, "one.py")
    assert run(repo, "one") == 2
    said = "git has no one.py at HEAD to compare with: commit it first\n"
    assert capsys.readouterr() == ("", said)

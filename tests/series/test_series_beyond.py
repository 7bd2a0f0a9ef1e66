"""A lesson of beyond/ may be deleted, with its table and its children: nothing else needs it."""

import re
import subprocess
import sys

import pytest

from tests.processes import LESSONS, LIMIT
from tools.pages import shell
from tools.series.__main__ import main

OPTIONAL = [lesson for lesson in LESSONS if lesson not in LESSONS.chain]


def descendants(lesson):
    children = [one for one in OPTIONAL if one.parent is lesson]
    return [lesson, *(each for child in children for each in descendants(child))]


@pytest.fixture
def copied(tmp_path):
    shell.copy([*shell.COPIED, "README.md"], tmp_path)
    return tmp_path


def delete(lesson, root):
    manifest = root / "lessons.toml"
    for gone in descendants(lesson):
        table = rf"(?ms)^\[+{gone.name}(\.[\w.]+)?\]+$.*?(?=^\[|\Z)"
        (root / gone.file).unlink(missing_ok=True)
        manifest.write_text(re.sub(table, "", manifest.read_text()))


@pytest.mark.parametrize("lesson", OPTIONAL, ids=lambda lesson: lesson.name)
def test_no_rule_needs_a_lesson_that_is_deleted(lesson, copied, capsys):
    delete(lesson, copied)
    assert [main(["--root", str(copied), command]) for command in ("lint", "tree")] == [0, 0]
    assert not re.search(rf"\b{lesson.name}\b", capsys.readouterr().out)


def test_the_workshop_needs_none_of_them(copied):
    for lesson in OPTIONAL:
        delete(lesson, copied)
    words = [sys.executable, "-m", "workshop", "list"]
    ran = subprocess.run(words, cwd=copied, capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "multigpu" in ran.stdout and "zero" not in ran.stdout

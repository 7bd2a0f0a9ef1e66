"""A lesson of beyond/ may be deleted, with its table and its children: nothing else needs it."""

import re
import subprocess
import sys

import pytest

from tests.processes import LESSONS, LIMIT
from tools.pages import shell

OPTIONAL = [lesson for lesson in LESSONS if lesson not in LESSONS.chain]


def descendants(lesson):
    children = [one for one in OPTIONAL if one.parent is lesson]
    return [lesson, *(each for child in children for each in descendants(child))]


@pytest.mark.parametrize("lesson", OPTIONAL, ids=lambda lesson: lesson.name)
def test_nothing_needs_a_lesson_that_is_deleted(lesson, tmp_path):
    shell.copy([*shell.COPIED, "README.md", "docs/_static/*"], tmp_path)
    manifest = tmp_path / "lessons.toml"
    for gone in descendants(lesson):
        table = rf"(?ms)^\[+{gone.name}(\.[\w.]+)?\]+$.*?(?=^\[|\Z)"
        (tmp_path / gone.file).unlink()
        manifest.write_text(re.sub(table, "", manifest.read_text()))
    for words in (["tools.series", "lint"], ["tools.series", "tree"], ["workshop", "list"]):
        ran = subprocess.run(
            [sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True,
            timeout=LIMIT,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert not re.search(rf"\b{lesson.name}\b", ran.stdout)

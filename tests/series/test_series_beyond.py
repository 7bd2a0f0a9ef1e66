"""A lesson of beyond/ may be deleted, with its table and its children: nothing else needs it."""

import re
import subprocess
import sys

from tests.processes import LESSONS, LIMIT
from tools.pages import shell
from tools.series.__main__ import main

OPTIONAL = [lesson for lesson in LESSONS if lesson not in LESSONS.chain]


def test_no_rule_and_no_exercise_needs_a_lesson_that_is_deleted(tmp_path, capsys):
    shell.copy([*shell.COPIED, "README.md"], tmp_path)
    manifest = tmp_path / "lessons.toml"
    for lesson in OPTIONAL:
        table = rf"(?ms)^\[+{lesson.name}(\.[\w.]+)?\]+$.*?(?=^\[|\Z)"
        (tmp_path / lesson.file).unlink()
        manifest.write_text(re.sub(table, "", manifest.read_text()))
    assert [main(["--root", str(tmp_path), command]) for command in ("lint", "tree")] == [0, 0]
    words = [sys.executable, "-m", "workshop", "list"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for output in (capsys.readouterr().out, ran.stdout):
        assert "multigpu" in output
        assert not [one for one in OPTIONAL if re.search(rf"\b{one.name}\b", output)], output

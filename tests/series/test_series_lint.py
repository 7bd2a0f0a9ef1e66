"""Each rule of the series, broken on purpose in a series that breaks none."""

import subprocess
from functools import partial

import pytest

from tests.processes import ROOT
from tools import series
from tools.series.__main__ import main
from tools.series.lint import COLUMNS, lint


def problems(tree):
    return [str(problem) for problem in lint(series.load(tree.root))]


# One change of one file, and all the problems that it makes.
BREACHES = {
    "budget": (
        "lessons.toml", "budget = 20", "budget = 17",
        "lessons.toml:30: [three] 18 changed lines (10 added, 8 removed), budget 17: "
        "shorten beyond/three.py",
    ),
    "lines of no edit, the first of them blank": (
        "lessons.toml", '"Trainer._load_checkpoint", "Trainer.train"]', '"Trainer.train"]',
        "beyond/three.py:38: [three] +'def _load_checkpoint(self):' in Trainer._load_checkpoint, "
        "one of 3 lines, belongs to no edit: name its scope in one",
    ),
    "a line of two edits": (
        "lessons.toml", 'torchrun"\nscopes = [', 'torchrun"\nscopes = ["Trainer.__init__", ',
        "beyond/three.py:24: [three] +'self.epochs_run = 0' in Trainer.__init__, one of 2 lines, "
        "belongs to leave-it-to-torchrun and to resume: narrow one of them with a match",
    ),
    "a scope that does not change": (
        "lessons.toml", '"Trainer.train"]', '"Trainer.train", "modul"]',
        "lessons.toml:41: [three] edit resume: scope modul takes no changed line; scopes that "
        "changed: docstring, imports, ddp_setup, Trainer.__init__, Trainer._load_checkpoint, "
        "Trainer.train, worker, __main__; not 'modul'",
    ),
    "a scope that matches nothing": (
        "lessons.toml", '"Trainer.train"]', '"Trainer.train", { in = "imports", match = "x y" }]',
        "lessons.toml:41: [three] edit resume: scope imports with match 'x y' takes no changed "
        "line; what changed in imports is taken by others, or does not match",
    ),
    "81 columns": (
        "beyond/three.py", '"three.pt"', f'"{"three.pt":27}"',
        "beyond/three.py:39: 81 columns, at most 80 are allowed: break the line",
    ),
    "no command": (
        "one.py", "    python one.py 50 10\n", "",
        "one.py:1: the docstring's indented commands are none: show one",
    ),
    "two commands": (
        "one.py", "Fifty epochs will do.\n", "Or:\n\n    python one.py\n",
        "one.py:1: the docstring's indented commands are ['python one.py 50 10', "
        "'python one.py']: show one",
    ),
    "noise": (
        "beyond/three.py", "        dist.destroy", "        # Why.\n        dist.destroy",
        "beyond/three.py:62: [three] only layout or comments change at '# Why.': leave it as "
        "two.py has it",
    ),
    "utils reaches for it": (
        "utils.py", "return SIZE", "return torch.distributed.get_rank()",
        "utils.py:10: 'return torch.distributed.get_rank()': torch.distributed is for the lessons "
        "to use",
    ),
    "an old table": (
        "README.md", "| One device |", "| A device |",
        "README.md:3: the table of lessons is out of date: python -m tools.series table",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "expected"),
    [(*case[:3], list(case[3:])) for case in BREACHES.values()], ids=BREACHES,
)  # fmt: skip
def test_a_breach_is_told(tree, file, old, new, expected):
    tree.edit(file, old, new)
    found = problems(tree)
    assert len(found) == len(expected)
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


def test_every_python_file_beside_the_lessons_is_one(tree):
    for file in ("five.py", "beyond/five.py"):
        tree.write(file, "")
    message = "no lesson of lessons.toml has this file: list it or remove it"
    assert problems(tree) == [f"beyond/five.py:1: {message}", f"five.py:1: {message}"]


def test_a_script_that_git_does_not_track_is_somebodys_own(tree):
    git = partial(subprocess.run, cwd=tree.root, check=True)
    git(["git", "init", "-q"])
    git(["git", "add", "."])
    tree.write("five.py", "")
    (tree.root / ".#one.py").symlink_to("nowhere")
    assert problems(tree) == []
    git(["git", "add", "five.py"])
    assert len(problems(tree)) == 1


def test_the_command_sums_up_or_fails(tree, capsys):
    assert main(["--root", str(tree.root), "lint"]) == 0
    assert capsys.readouterr().out == "3 lessons, 5 edits, 41 changed lines: no problems\n"
    tree.edit("lessons.toml", "budget = 20", "budget = 17")
    assert main(["--root", str(tree.root), "lint"]) == 1
    assert capsys.readouterr().out.startswith("lessons.toml:30: [three] 18 changed lines")


def test_the_chain_of_the_theory_page_has_small_edits_and_short_lines():
    chain = series.load(ROOT / "docs" / "theory")
    assert all(sum(lesson.count()) <= lesson.budget for lesson in chain if lesson.parent)
    for script in chain.root.glob("*.py"):
        assert max(map(len, script.read_text().splitlines())) <= COLUMNS, script

"""Each rule of the series, broken on purpose in a series that breaks none."""

import subprocess
from functools import partial

import pytest

from tools import series
from tools.series.__main__ import main
from tools.series.lint import lint


def problems(tree):
    return [str(problem) for problem in lint(series.load(tree.root))]


STALE = "README.md:3: the table of lessons is out of date: python -m tools.series table --write"
MARKERS = (
    "README.md:1: needs one line <!-- lessons:begin --> and below it one line "
    "<!-- lessons:end -->: add them"
)
FORBIDDEN = "torch.distributed is for the lessons to use"

# One change of one file, and all the problems that it makes.
BREACHES = {
    "budget": (
        "lessons.toml", "budget = 20", "budget = 17",
        "lessons.toml:40: [three] 18 changed lines (10 added, 8 removed), budget 17: "
        "shorten three.py",
    ),
    "lines of no edit, the first of them blank": (
        "lessons.toml", '"Trainer._load_checkpoint", "Trainer.train"]', '"Trainer.train"]',
        "three.py:38: [three] +'def _load_checkpoint(self):' in Trainer._load_checkpoint, one of "
        "3 lines, belongs to no edit: name its scope in one",
    ),
    "definitions out of order": (
        "lessons.toml", '"main", "worker", "__main__"', '"worker", "main", "__main__"',
        "beyond/four.py:54: worker stands below main: move it above",
        "three.py:57: worker stands below main: move it above",
        "two.py:55: worker stands below main: move it above",
    ),
    "definition that the order does not know": (
        "lessons.toml", '"Trainer._load_checkpoint",\n', "\n",
        "three.py:38: Trainer._load_checkpoint is not in the order of [series]: add it there, "
        "or do without",
    ),
    "81 columns": (
        "three.py", '"three.pt"', f'"{"three.pt":27}"',
        "three.py:39: 81 columns, at most 80 are allowed: break the line",
    ),
    "another command": (
        "lessons.toml", '"OMP_NUM_THREADS=1 torchrun', '"torchrun', STALE,
        "three.py:1: the docstring's indented commands are ['OMP_NUM_THREADS=1 torchrun "
        "--standalone three.py 50 10']: show 'torchrun --standalone three.py 50 10', and nothing "
        "else",
    ),
    "no command": (
        "one.py", "    python one.py 50 10\n", "",
        "one.py:1: the docstring's indented commands are none: show 'python one.py 50 10', and "
        "nothing else",
    ),
    "two commands": (
        "one.py", "Fifty epochs will do.\n", "Or:\n\n    python one.py\n",
        "one.py:1: the docstring's indented commands are ['python one.py 50 10', "
        "'python one.py']: show 'python one.py 50 10', and nothing else",
    ),
    "noise": (
        "beyond/four.py", "for batch in self", "for batch in  self", STALE,
        "beyond/four.py:30: [four] 'for batch in  self.train_data:' is line 31 of two.py, only "
        "moved or laid out anew: leave it as two.py has it",
        "lessons.toml:57: [four] 4 changed lines (2 added, 2 removed), budget 2: "
        "shorten beyond/four.py",
    ),
    "listed, not there; there, not listed": (
        "lessons.toml", '"beyond/four.py"\n', '"beyond/five.py"\n',
        "beyond/five.py:1: no such file: write it, or unlist it in lessons.toml",
        "beyond/four.py:1: no lesson of lessons.toml has this file: list it or remove it",
    ),
    "not Python": (
        "two.py", "def main(args):", "def main(args:",
        "two.py:49: not valid Python: '(' was never closed",
    ),
    "utils imports it": (
        "utils.py", "from torch.utils", "import torch.distributed.rpc\nfrom torch.utils",
        f"utils.py:3: 'import torch.distributed.rpc': {FORBIDDEN}",
    ),
    "utils imports it from torch": (
        "utils.py", "from torch.utils", "from torch import nn, distributed as d\nfrom torch.utils",
        f"utils.py:3: 'from torch import nn, distributed as d': {FORBIDDEN}",
    ),
    "utils reaches for it": (
        "utils.py", "return SIZE", "return torch.distributed.get_rank()",
        f"utils.py:10: 'torch.distributed': {FORBIDDEN}",
    ),
    "utils has a name more": (
        "utils.py", "SIZE = 100", "SIZE, MORE = 100, 200",
        "utils.py:5: 'MORE' is not in utils of [series]: list it, or begin it with an underscore",
    ),
    "utils has a constant more, with its type": (
        "utils.py", "SIZE = 100", "SIZE = 100\nMORE: int = 3",
        "utils.py:6: 'MORE' is not in utils of [series]: list it, or begin it with an underscore",
    ),
    "utils has a name less": (
        "utils.py", "SIZE = 100", "_SIZE = 100",
        "utils.py:1: utils of [series] lists 'SIZE', but this file does not define it: drop it",
    ),
    "README out of date": ("README.md", "| 2 (1 + 1) |", "| 3 (1 + 2) |", STALE),
    "README without the first marker": ("README.md", "<!-- lessons:begin -->", "", MARKERS),
    "README with a marker twice": ("README.md", "# C", "<!-- lessons:begin -->\n# C", MARKERS),
    "README with the other twice": ("README.md", "Go on", "<!-- lessons:end -->\nGo on", MARKERS),
}  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "expected"),
    [(*case[:3], list(case[3:])) for case in BREACHES.values()], ids=BREACHES,
)  # fmt: skip
def test_a_breach_is_told(tree, file, old, new, expected):
    tree.edit(file, old, new)
    assert problems(tree) == expected


# And what looks like a breach, but is none.
SOUND = {
    "80 columns": ("three.py", '"three.pt"', f'"{"three.pt":26}"'),
    "something else called distributed": (
        "utils.py", "return SIZE", "return self.distributed + torch.distributed_x"
    ),
    "a name that lives in an expression": ("utils.py", "SIZE = 100", "SIZE = sum(n for n in ())"),
    "a private name": ("utils.py", "SIZE = 100", "SIZE, _MORE = 100, 200"),
    "prose of the README": ("README.md", "Go on with", "Begin with"),
}  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new"), SOUND.values(), ids=SOUND)
def test_no_breach_is_not_told(tree, file, old, new):
    tree.edit(file, old, new)
    assert problems(tree) == []


def test_a_lesson_needs_a_docstring(tree):
    tree.edit("one.py", '"""Count on', 'MANUAL = """Count on')
    message = "one.py:1: no docstring: write one with the indented command 'python one.py 50 10'"
    assert message in problems(tree)


@pytest.mark.parametrize("file", ["conftest.py", "setup.py", "tests/five.py"])
def test_not_every_python_file_is_a_lesson(tree, file):
    (tree.root / "tests").mkdir()
    tree.write(file, "")
    assert problems(tree) == []


@pytest.mark.parametrize("file", ["five.py", "beyond/five.py"])
def test_but_every_other_is(tree, file):
    tree.write(file, "")
    message = f"{file}:1: no lesson of lessons.toml has this file: list it or remove it"
    assert problems(tree) == [message]


def test_a_script_that_git_does_not_track_is_somebodys_own(tree):
    git = partial(subprocess.run, cwd=tree.root, check=True)
    git(["git", "init", "-q"])
    git(["git", "add", "."])
    tree.write("five.py", "")
    (tree.root / ".#one.py").symlink_to("nowhere")
    assert problems(tree) == []
    git(["git", "add", "five.py"])
    assert len(problems(tree)) == 1


@pytest.mark.parametrize("file", ["utils.py", "README.md"])
def test_a_file_that_each_series_has_is_missed(tree, file):
    (tree.root / file).unlink()
    assert [text.split(" file: ")[0] for text in problems(tree)] == [f"{file}:1: no such"]


def test_the_command_sums_up_or_fails(tree, capsys):
    assert main(["--root", str(tree.root), "lint"]) == 0
    assert capsys.readouterr().out == "4 lessons, 6 edits, 43 changed lines: no problems\n"
    tree.edit("lessons.toml", "budget = 20", "budget = 17")
    assert main(["--root", str(tree.root), "lint"]) == 1
    assert capsys.readouterr().out.startswith("lessons.toml:40: [three] 18 changed lines")
    tree.edit("lessons.toml", "budget = 17", "")
    assert main(["--root", str(tree.root), "lint"]) == 1
    out = "lessons.toml:40: [three] no 'budget': add it (a whole number)\n"
    assert capsys.readouterr().out == out

"""lessons.toml: each mistake in it gets one line that says where it is and how to fix it."""

from pathlib import Path

import pytest

from tools import series
from tools.errors import UserError

MISTAKES = {
    "not TOML": (
        'title = "Restarts"', "title = Restarts", "1: not valid TOML: Invalid value (at line 32"
    ),
    "unknown key of a lesson": (
        'title = "Restarts"', 'titel = "Restarts"',
        "30: [three] unknown key 'titel': correct or drop it; known: budget, edit, "
        "edit_budget, file, observe, page, parent, renames, title",
    ),
    "key of a lesson missing": ('title = "Restarts"', "", "30: [three] no 'title': add it (str)"),
    "budget not a number": (
        "budget = 20", "budget = true", "30: [three] 'budget' must be of type int, not True"
    ),
    "budget of a root": (
        'page = "1_one"', 'page = "1_one"\nbudget = 3', "1: [one] unknown key 'budget'"
    ),
    "unknown parent": (
        'parent = "one"', 'parent = "won"',
        "5: [two] parent 'won' is no lesson above this one; above are: one",
    ),
    "two lessons of one file": (
        'title = "Restarts"', 'title = ""\nfile = "two.py"',
        "30: [three] file 'two.py' belongs to [two] already",
    ),
    "no table": ("[one]", "five = 3\n[one]", "1: [five] 'five' is not a table"),
    "unknown key of an edit": (
        'name = "resume"', 'name = "resume"\nhint = ""', "41: [three.edit] unknown key 'hint'"
    ),
    "name with a space": (
        'name = "resume"', 'name = "Go on"',
        "41: [three.edit] name 'Go on': use small letters, digits and single hyphens",
    ),
    "name taken": (
        'name = "resume"', 'name = "leave-it-to-torchrun"',
        "41: [three.edit] name 'leave-it-to-torchrun' is taken by an edit above",
    ),
    "scope of another type": (
        '"Trainer.__init__", "Trainer._load_checkpoint", "Trainer.train"]', "7]",
        "41: [three.edit] scope 7 must be a string or { in = …, match = … }",
    ),
    "scope without match": (
        '{ in = "imports", match = "Sampler" }', '{ in = "imports" }',
        "16: [two.edit] no 'match': add it (str)",
    ),
    "match that is no pattern": (
        'match = "Sampler"', 'match = "("',
        "16: [two.edit] match '(' is not a regular expression: missing )",
    ),
    "observation that is no pattern": (
        'name = "resume"', 'name = "resume"\nshows = "("', "shows '(' is not a regular expression"
    ),
    "unknown fault": (
        'name = "resume"', 'name = "resume"\nshows = "x"\nfault = "flood"',
        "fault 'flood' is none of kill, raise, ",
    ),
    "observation without a pattern": (
        'name = "resume"', 'name = "resume"\nprocesses = 2',
        "processes says nothing of the output: add shows",
    ),
    "comparison with nothing": (
        'name = "resume"', 'name = "resume"\nsame = "(x)"', "compare two runs: add again"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(tree, old, new, message):
    tree.edit("lessons.toml", old, new)
    with pytest.raises(UserError) as caught:
        series.load(tree.root)
    text = str(caught.value)
    assert text.startswith("lessons.toml:") and message in text and "\n" not in text


def test_a_missing_manifest_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(UserError, match=f"no such file in {tmp_path}"):
        series.load(tmp_path)


def test_root_and_file_are_found_unless_given(tree):
    assert series.load().root == Path(__file__).parents[2]
    lessons = series.load(str(tree.root))
    assert [lesson.file for lesson in lessons] == ["one.py", "two.py", "beyond/three.py"]
    assert lessons["three"].parent is lessons["two"] and lessons["one"].parent is None

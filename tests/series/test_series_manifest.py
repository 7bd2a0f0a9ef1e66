"""lessons.toml: each mistake in it gets one line that says where it is and how to fix it."""

from pathlib import Path

import pytest

from tools import series
from tools.errors import UserError

FIVE = """[five]
parent = "one"
title = ""
page = ""
run = "true"
budget = 1
edit = [3]
"""
MISTAKES = {
    "not TOML": (
        'title = "Restarts"', "title = Restarts", "1: not valid TOML: Invalid value (at line 4"
    ),
    "unknown key of the series": (
        "columns = 80", "columns = 80\nrows = 3",
        "1: [series] unknown key 'rows': correct or drop it; known: columns, order, utils",
    ),
    "names that are not strings": (
        'utils = ["SIZE", ', "utils = [1, ",
        "1: [series] 'utils' must be a list of strings, not [1, 'Numbers', 'parse_args', 'report']",
    ),
    "a name instead of names": (
        'utils = ["SIZE", "Numbers", "parse_args", "report"]', 'utils = "SIZE"',
        "1: [series] 'utils' must be a list of strings, not 'SIZE'",
    ),
    "unknown key of a lesson": (
        'title = "Restarts"', 'titel = "Restarts"',
        "40: [three] unknown key 'titel': correct or drop it; known: budget, edit, "
        "edit_budget, file, observe, page, parent, renames, run, title",
    ),
    "renames that are no names": (
        "budget = 20", "budget = 20\nrenames = { epoch = 1 }",
        "40: [three] 'renames' must be a table of strings, not {'epoch': 1}",
    ),
    "key of a lesson missing": (
        'page = "3_three"', "", "40: [three] no 'page': add it (a string)"
    ),
    "budget not a number": (
        "budget = 20", "budget = true", "40: [three] 'budget' must be a whole number, not True"
    ),
    "budget of a root": (
        'page = "1_one"', 'page = "1_one"\nbudget = 3', "9: [one] unknown key 'budget'"
    ),
    "no shell command": (
        "standalone beyond/three.py 50 10", "standalone 'beyond/three.py",
        "40: [three] run \"OMP_NUM_THREADS=1 torchrun --standalone 'beyond/three.py\" is not a "
        "shell command: No closing quotation",
    ),
    "no command": (
        'run = "python one.py 50 10"', 'run = "A=1"', "9: [one] run 'A=1' is not a shell command"
    ),
    "unknown parent": (
        'parent = "one"', 'parent = "won"',
        "14: [two] parent 'won' is no lesson above this one; above are: one",
    ),
    "two lessons of one file": (
        '"beyond/three.py"\nparent', '"two.py"\nparent',
        "40: [three] file 'two.py' belongs to [two] already",
    ),
    "no table": ("[series]", "five = 3\n[series]", "1: [five] 'five' is not a table"),
    "unknown key of an edit": (
        'name = "resume"', 'name = "resume"\nhint = ""', "53: [three.edit] unknown key 'hint'"
    ),
    "edits that are no tables": (
        "[three]", FIVE + "[three]",
        "40: [five] 'edit' must be tables, not [3]",
    ),
    "name with a space": (
        'name = "resume"', 'name = "Go on"',
        "53: [three.edit] name 'Go on': use small letters, digits and single hyphens",
    ),
    "name taken": (
        'name = "resume"', 'name = "leave-it-to-torchrun"',
        "53: [three.edit] name 'leave-it-to-torchrun' is taken by an edit above",
    ),
    "scope of another type": (
        '"Trainer.__init__", "Trainer._load_checkpoint", "Trainer.train"]', "7]",
        "53: [three.edit] scope 7 must be a string or { in = …, match = … }",
    ),
    "scope without match": (
        '{ in = "imports", match = "Sampler" }', '{ in = "imports" }',
        "26: [two.edit] no 'match': add it (a string)",
    ),
    "match that is no pattern": (
        'match = "Sampler"', 'match = "("',
        "26: [two.edit] match '(' is not a regular expression: missing )",
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

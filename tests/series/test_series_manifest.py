"""lessons.toml: each mistake in it gets one line that says where it is and how to fix it."""

import pytest

from tests.processes import ROOT
from tools import series
from tools.errors import UserError

MISTAKES = {
    "not TOML": (
        'title = "Restarts"', "title = Restarts", "1: not valid TOML: Invalid value (at line 32"
    ),
    "unknown key of a lesson": (
        'title = "Restarts"', 'title = "Restarts"\ntitel = ""',
        "30: [three] unknown key 'titel': correct or drop it; known: budget, edit, "
        "edit_budget, file, observe, page, parent, renames, title",
    ),
    "key of a lesson missing": ('title = "Restarts"', "", "30: [three] no 'title': add it"),
    "budget of a root": (
        'page = "1_one"', 'page = "1_one"\nbudget = 3', "1: [one] unknown key 'budget'"
    ),
    "unknown parent": (
        'parent = "one"', 'parent = "won"',
        "5: [two] parent 'won' is no lesson above this one; above are: one",
    ),
    "unknown key of an edit": (
        'name = "resume"', 'name = "resume"\nhint = ""', "41: [three.edit] unknown key 'hint'"
    ),
    "name taken": (
        'name = "resume"', 'name = "leave-it-to-torchrun"',
        "41: [three.edit] name 'leave-it-to-torchrun' is taken by an edit above",
    ),
    "match that is no pattern": (
        'match = "Sampler"', 'match = "("',
        "16: [two.edit] match '(' is not a regular expression: missing )",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line(tree, old, new, message):
    tree.edit("lessons.toml", old, new)
    with pytest.raises(UserError) as caught:
        series.load(tree.root)
    text = str(caught.value)
    assert text.startswith(f"lessons.toml:{message}") and "\n" not in text


def test_root_and_file_are_found_unless_given(tree):
    assert series.load().root == ROOT
    lessons = series.load(str(tree.root))
    assert [lesson.file for lesson in lessons] == ["one.py", "two.py", "beyond/three.py"]
    assert lessons["three"].parent is lessons["two"] and lessons["one"].parent is None

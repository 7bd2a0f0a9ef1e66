"""Diffs: where hunks lie, what they count, and to which edit each line goes."""

import random
from difflib import SequenceMatcher
from textwrap import dedent

import pytest

from tools import series
from tools.series import stages
from tools.series.diff import Line, _align, compare
from tools.series.source import Source


def diff(old, new):
    """The diff as lines of text: sign, scope, text."""
    rows = compare(Source("old.py", dedent(old)), Source("new.py", dedent(new)))
    return [f"{row.sign}{row.scope}: {row.text}".rstrip() for row in rows if row.changed]


def test_an_inserted_function_is_one_block_of_its_own_scope():
    """Even if it ends like the function above, whose end difflib takes for the new one's."""
    old = """\
        def a(x):
            y = 1
            return x


        def z():
            pass
        """
    new = """\
        def a(x):
            y = 2
            return x


        def b(x):
            x += 1
            return x


        def z():
            pass
        """
    inserted = ["b:", "b:", "b: def b(x):", "b:     x += 1", "b:     return x"]
    assert diff(old, new) == ["-a:     y = 1", "+a:     y = 2", *[f"+{b}" for b in inserted]]
    assert diff(new, old) == ["-a:     y = 2", "+a:     y = 1", *[f"-{b}" for b in inserted]]


@pytest.mark.parametrize(
    ("above", "inserted", "below"),
    [
        # A block that ends as the one above it: not the tail of that one and its own head. difflib
        # has its place too high where more lines follow, too low where fewer do.
        (["if a:", "    f()"], ["if b:", "    f()"], []),
        (["if a:", "    f()"], ["if b:", "    f()"], ["g(1)", "g(2)", "g(3)"]),
        # Blank lines in it are no place to cut.
        (["for a in x:", "    p()", "", "    q()"], ["for b in x:", "    p()", "", "    q()"], []),
        # With a blank line between: above the block, not below.
        (["f(1)"], ["", "g()"], ["", "f(2)"]),
    ],
)
def test_an_insertion_is_slid_to_where_it_tears_no_statement_apart(above, inserted, below):
    def function(lines):
        return "def f():\n" + "".join(f"    {line}".rstrip() + "\n" for line in lines)

    old, new = function(above + below), function(above + inserted + below)
    assert diff(old, new) == [f"+f:     {line}".rstrip() for line in inserted]
    assert diff(new, old) == [f"-f:     {line}".rstrip() for line in inserted]


def test_repeated_lines_are_inserted_last_as_git_has_it():
    rows = compare(Source("old.py", "x()\nx()\n"), Source("new.py", "x()\nx()\nx()\n"))
    assert [(row.sign, row.number) for row in rows] == [(" ", 1), (" ", 2), ("+", 3)]


def test_no_sliding_loses_or_invents_a_line():
    choice = random.Random(0).choice
    pool = ["p", "q", "", "    p", "    q"]
    for _ in range(300):
        old, new = ([choice(pool) for _ in range(choice(range(12)))] for _ in "ab")
        removed, added = (
            [Line(sign, number, text, "") for number, text in enumerate(lines)]
            for sign, lines in (("-", old), ("+", new))
        )
        rows = list(_align(removed, added))
        assert [row.text for row in rows if row.sign != "+"] == old
        assert [(row.number, row.text) for row in rows if row.sign != "-"] == [*enumerate(new)]
        blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        assert sum(not row.changed for row in rows) == sum(block.size for block in blocks)


def test_a_line_that_stands_in_a_long_file_often_is_matched_all_the_same():
    long = "f()\n" * 300
    assert diff(long, "g()\n" + long) == ["+module: g()"]


def test_blank_lines_and_docstring_are_not_counted_imports_and_comments_are(tree):
    lesson = series.load(tree.root)["three"]
    assert lesson.count() == (10, 8)
    assert not any(row.counted for row in lesson.rows if not row.changed)
    tree.edit("beyond/three.py", "\n\nFifty epochs will do.", "\nMore.\n\nFifty epochs will do.")
    tree.edit("beyond/three.py", "import torch\n", "import os\n\n\nimport torch\n")
    tree.edit("beyond/three.py", "    dist.init", "    # Why.\n    dist.init")
    assert series.load(tree.root)["three"].count() == (12, 8)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (["a", "z"], ["one", "", "two", "", "z"], ["-a 2", "+one 0", "+ 1", "+two 1", "+ 1"]),
        # The next line below has been added, this one removed: it goes with what was removed.
        (["one", "", "z"], ["two", "z"], ["-one 0", "- 0", "+two 1"]),
    ],
)
def test_a_blank_line_goes_with_the_line_below_it_or_else_above(tree, old, new, expected):
    one, two = (f'{{ in = "module", match = "{word}" }}' for word in ("one", "two"))
    tree.become_two(old, new, one, two, '"module"')
    rows = series.load(tree.root)["b"].diff()
    assert [f"{row.sign}{row.text} {row.edit}" for row in rows] == expected


def test_a_fingerprint_changes_with_the_text_and_not_with_the_place(tree):
    def fingerprint():
        return stages.after(series.load(tree.root)["three"].edit("resume")).fingerprint

    before = fingerprint()
    tree.edit("two.py", "import torch\n", "import os\nimport torch\n")
    tree.edit("beyond/three.py", "import torch\n", "import os\nimport torch\n")
    assert fingerprint() == before
    tree.edit("beyond/three.py", "self.epochs_run = 0", "self.epochs_run = 1")
    assert fingerprint() != before


def test_what_an_edit_removes_stands_above_what_others_add_if_it_adds_nothing(tree):
    match = '{{ in = "module", match = "{}" }}'
    tree.become_two(["a", "z"], ["b", "c", "z"], match.format("a"), match.format("[bc]"))
    rows = series.load(tree.root)["b"].edit("0").rows
    assert [row.sign + row.text for row in rows] == ["-a", " b", " c", " z"]


def near(old, new):
    rows = compare(Source("old.py", "\n".join(old) + "\n"), Source("new.py", "\n".join(new) + "\n"))
    return [row.text for row, shown in zip(rows, series.near_changes(rows), strict=True) if shown]


def test_what_is_shown_with_a_change_neither_begins_nor_ends_with_a_blank_line():
    old = ["a = 1", "", "", "c = 1", "", "", "d = 1"]
    assert near(old, ["c = 2" if line == "c = 1" else line for line in old]) == ["c = 1", "c = 2"]


def test_a_gap_of_two_lines_is_shown_and_one_of_three_is_folded():
    for lines, folded in (10, 0), (11, 3):
        old = [f"x{i} = 1" for i in range(lines)]
        new = ["x1 = 2", *old[2:-2], f"x{lines - 2} = 2", old[-1]]
        shown = near(old, [old[0], *new])
        assert len(shown) == lines + 2 - folded

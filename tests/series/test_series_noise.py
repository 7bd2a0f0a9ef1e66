"""Tell changes that teach nothing from changes that do."""

from types import SimpleNamespace

import pytest

from tools.series import noise
from tools.series.diff import compare
from tools.series.source import Source


def noises(old, new, **renames):
    """The complaints about a change, without file, lesson and advice."""
    old, new = Source("old.py", old), Source("new.py", new)
    lesson = SimpleNamespace(
        name="new", file="new.py", source=new, rows=compare(old, new, renames), renames=renames,
        parent=SimpleNamespace(file="old.py", source=old),
    )  # fmt: skip
    found = [str(problem) for problem in noise.check(lesson)]
    assert all(text.endswith(": leave it as old.py has it") for text in found)
    return [text.replace("[new] ", "").rsplit(":", 1)[0] for text in found]


def in_function(body):
    return "def f():\n" + "".join(f"    {line}\n" for line in body.split("\n"))


LAYOUT = "only layout or comments change at"
ANEW = "the same but for its place, layout or comment"
NOISY = {
    "spaces": ("f(a,b)", "f(a, b)", [f"new.py:2: {LAYOUT} 'f(a, b)'"]),
    "line breaks and trailing comma": (
        "x = f(a, b)", "x = f(\n    a,\n    b,\n)", [f"new.py:2: {LAYOUT} 'x = f('"]
    ),
    "re-indented below a new condition": (
        "g()\nreport(x)", "g()\nif a:\n    report(x)",
        [f"new.py:4: 'report(x)' is line 3 of old.py, {ANEW}"],
    ),
    "blank line": ("a\nb", "a\n\nb", [f"new.py:3: {LAYOUT} ''"]),
    "comment dropped": ("a\n# why\nb", "a\nb", [f"old.py:3: {LAYOUT} '# why'"]),
    "comment reworded": ("f(a)  # one", "f(a)  # two", [f"new.py:2: {LAYOUT} 'f(a)  # two'"]),
    "comment reworded beside a change": (
        "f(a)  # one\ng(1)", "f(a)  # two\nh(2)",
        [f"new.py:2: 'f(a)  # two' is line 2 of old.py, {ANEW}"],
    ),
    "moved within the function": (
        "x = y\ng(2)\ng(3)\ng(4)", "g(2)\ng(3)\ng(4)\nx = y",
        [f"new.py:5: 'x = y' is line 2 of old.py, {ANEW}"],
    ),
    "variable": (
        "gpu = f(1)\ng(gpu, 2)", "rank = f(1)\ng(rank, 2)",
        ["new.py:2: 'gpu' is only renamed to 'rank'"],
    ),
    "attribute": (
        "self.gpu = f(1)", "self.rank = f(1)", ["new.py:2: 'gpu' is only renamed to 'rank'"]
    ),
    "two names in a line": (
        "a, b = f(1)", "c, d = f(1)",
        ["new.py:2: 'a' is only renamed to 'c'", "new.py:2: 'b' is only renamed to 'd'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), NOISY.values(), ids=NOISY)
def test_noise_is_told(old, new, expected):
    assert noises(in_function(old), in_function(new)) == expected


SOUND = {
    "another argument": ("f(a, b)", "f(a, c)"),
    "code with its comment": ("a", "a\n# why\nb"),
    "trivial arguments": ("f(\n    x,\n    y,\n    z,\n)", "f(\n    y,\n    z,\n    x,\n)"),
    "imported for imported": (
        "from x import Random\nRandom(1)", "from x import Distributed\nDistributed(1)"
    ),
    "the name lives on": ("gpu = f(1)\ng(gpu)", "rank = f(1)\ng(gpu)"),
    "the name was there": ("gpu = f(1)\ng(gpu, rank)", "rank = f(1)\ng(0, rank)"),
    "renamed and changed": ("gpu = f(1)", "rank = f(2)"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SOUND.values(), ids=SOUND)
def test_sense_is_not_noise(old, new):
    assert noises(in_function(old), in_function(new)) == []


def test_a_line_moved_to_another_definition_is_told_unless_that_is_new():
    old = "def f():\n    a(1)\n    b(2)\n\n\ndef h():\n    c(3)\n"
    both = "def f():\n    b(2)\n\n\ndef g():\n    a(1)\n\n\ndef h():\n    a(1)\n    c(3)\n"
    assert noises(old, both) == [f"new.py:10: 'a(1)' is line 2 of old.py, {ANEW}"]
    swapped = "def h():\n    c(3)\n\n\ndef f():\n    a(1)\n    b(2)\n"
    assert f"new.py:2: 'c(3)' is line 7 of old.py, {ANEW}" in noises(old, swapped)
    imports = "import os\nimport sys\n\n\ndef f():\n    a(1)\n"
    assert noises(imports, imports.replace("import os\n", "") + "\n\nimport os\n") == [
        f"new.py:8: 'import os' is line 1 of old.py, {ANEW}"
    ]


def test_a_renamed_function_is_told_though_definitions_are_aligned_by_name():
    found = noises("def save(x):\n    f(x)\n", "def store(x):\n    f(x)\n")
    assert found == ["new.py:1: 'save' is only renamed to 'store'"]


def test_the_docstring_may_be_reworded_and_laid_out_as_it_must():
    old = '"""One.\n\nTwo (or so),\nfour (too).\n"""\n'
    new = '"""One.\nfour (too).\n\nTwo (or so),\n"""\n'
    assert noises(old, new) == noises(new, old) == []


def test_a_name_that_means_something_new_may_be_replaced():
    old = "def f(epoch):\n    a(1)\n    go(epoch)\n    b(2)\n"
    new = "def g(step):\n    a(1)\n    go(step)\n    b(2)\n"
    assert noises(old, new)
    assert noises(old, new, epoch="step", f="g") == []
    assert len(noises(old, new, epoch="stage", f="g")) == 1


def test_a_renamed_definition_is_compared_with_what_it_became():
    old = Source("old.py", "class A:\n    def f(self):\n        a(1)\n        b(2)\n")
    new = Source("new.py", "class A:\n    def g(self):\n        a(1)\n        b(3)\n")
    assert [line.sign for line in compare(old, new)].count(" ") == 1
    rows = compare(old, new, {"f": "g"})
    assert [(line.sign, line.text.strip()) for line in rows if line.changed] == [
        ("-", "def f(self):"), ("+", "def g(self):"), ("-", "b(2)"), ("+", "b(3)")
    ]  # fmt: skip
    assert {line.scope for line in rows if line.changed} == {"A.g"}

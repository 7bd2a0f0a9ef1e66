"""Changes that teach nothing are told from those that do."""

from types import SimpleNamespace

import pytest

from tools.series import Source, noise
from tools.series.diff import compare


def noises(old, new, **renames):
    """What is said of the change, without file, lesson and advice."""
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


NOISY = {
    "spaces": ("f(a,b)", "f(a, b)", ["new.py:2: only the layout changes at 'f(a, b)'"]),
    "line breaks and trailing comma": (
        "x = f(a, b)", "x = f(\n    a,\n    b,\n)",
        ["new.py:2: only the layout changes at 'x = f('"],
    ),
    "re-indented below a new condition": (
        "g()\nreport(x)", "g()\nif a:\n    report(x)",
        ["new.py:4: only the layout changes at 'report(x)'"],
    ),
    "re-indented and more besides": (
        "one(1)\ntwo(2)\nthree(3)", "with a:\n    one(1)\n    two(2)\n    four(4)",
        ["new.py:3: only the layout changes at 'one(1)'"],
    ),
    "trivial, but the whole hunk": (
        "f(\n    a\n)", "f(\n    a\n    )", ["new.py:4: only the layout changes at ')'"]
    ),
    "blank line added": ("a\nb", "a\n\nb", ["new.py:3: only the number of blank lines changes"]),
    "blank line dropped": ("a\n\nb", "a\nb", ["old.py:3: only the number of blank lines changes"]),
    "re-indented below its comment": (
        "# c\nf(1)", "if b:\n    # c\n    f(1)", ["new.py:4: only the layout changes at 'f(1)'"]
    ),
    "comment added": ("a\nb", "a\n# why\nb", ["new.py:3: only a comment changes at '# why'"]),
    "comment dropped": ("a\n# why\nb", "a\nb", ["old.py:3: only a comment changes at '# why'"]),
    "comment reworded": (
        "f(a)  # one", "f(a)  # two", ["new.py:2: only a comment changes at 'f(a)  # two'"]
    ),
    "moved within the function": (
        "f(1)\ng(2)\ng(3)\ng(4)", "g(2)\ng(3)\ng(4)\nf(1)",
        ["new.py:5: 'f(1)' is only moved here from line 2 of old.py"],
    ),
    "moved, a call without arguments": (
        "save()\ng(2)\ng(3)", "g(2)\ng(3)\nsave()",
        ["new.py:4: 'save()' is only moved here from line 2 of old.py"],
    ),
    "moved, two names": (
        "x = y\ng(2)\ng(3)", "g(2)\ng(3)\nx = y",
        ["new.py:4: 'x = y' is only moved here from line 2 of old.py"],
    ),
    "variable": (
        "gpu = f(1)\ng(gpu, 2)", "rank = f(1)\ng(rank, 2)",
        ["new.py:2: 'gpu' is only renamed to 'rank'"],
    ),
    "attribute": (
        "self.gpu = f(1)", "self.rank = f(1)", ["new.py:2: 'gpu' is only renamed to 'rank'"]
    ),
    "parameter, in an f-string too": (
        "g = lambda gpu: f'{gpu}'", "g = lambda rank: f'{rank}'",
        ["new.py:2: 'gpu' is only renamed to 'rank'"],
    ),
    "two names in a line": (
        "a, b = f(1)", "c, d = f(1)",
        ["new.py:2: 'a' is only renamed to 'c'", "new.py:2: 'b' is only renamed to 'd'"],
    ),
    "class": (
        "class Gpu: pass", "class Rank: pass", ["new.py:2: 'Gpu' is only renamed to 'Rank'"]
    ),
    "function, its comments changed as well": (
        "def save(): pass  # one", "def store(): pass  # two",
        ["new.py:2: 'save' is only renamed to 'store'"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), NOISY.values(), ids=NOISY)
def test_noise_is_told(old, new, expected):
    assert sorted(noises(in_function(old), in_function(new))) == expected


SOUND = {
    "another argument": ("f(a, b)", "f(a, c)"),
    "a tuple is no trailing comma": ("x = (a)", "x = (a,)"),
    "spaces within a string": ("f('a  b')", "f('a b')"),
    "spaces within an f-string": ("f(f'{a}  b')", "f(f'{a} b')"),
    "code with its comment": ("a", "a\n# why\nb"),
    "a line break within a string": ('f("""a b""")', 'f("""a\nb""")'),
    "trivial lines of a pair": ("return x", "if a:\n    return x"),
    "trivial arguments": ("f(\n    x,\n    y,\n    z,\n)", "f(\n    y,\n    z,\n    x,\n)"),
    "moved to another depth": ("f(1)\ng(2)\nh(3)", "g(2)\nh(3)\nif a:\n    f(1)"),
    "imported for imported": (
        "from x import Random\nRandom(1)", "from x import Distributed\nDistributed(1)"
    ),
    "the name lives on": ("gpu = f(1)\ng(gpu)", "rank = f(1)\ng(gpu)"),
    "the name was there": ("gpu = f(1)\ng(gpu, rank)", "rank = f(1)\ng(0, rank)"),
    "the name is imported now": ("gpu = f(1)", "from x import gpu\nrank = f(1)"),
    "renamed and changed": ("gpu = f(1)", "rank = f(2)"),
    "renamed and more of it": ("gpu = f(1)", "rank = f(1) + 2"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SOUND.values(), ids=SOUND)
def test_sense_is_not_noise(old, new):
    assert noises(in_function(old), in_function(new)) == []


def test_a_line_moved_to_another_definition_is_told():
    old = "def f():\n    a(1)\n    b(2)\n\n\ndef g():\n    c(3)\n"
    new = "def f():\n    b(2)\n\n\ndef g():\n    a(1)\n    c(3)\n"
    assert noises(old, new) == ["new.py:6: 'a(1)' is only moved here from line 2 of old.py"]
    imports = "import os\nimport sys\n\n\ndef f():\n    a(1)\n"
    assert noises(imports, imports.replace("import os\n", "") + "\n\nimport os\n") == [
        "new.py:8: 'import os' is only moved here from line 1 of old.py"
    ]


def test_a_line_moved_into_a_new_function_is_no_noise():
    old = "def f():\n    a(1)\n    b(2)\n"
    assert noises(old, "def f():\n    g()\n    b(2)\n\n\ndef g():\n    a(1)\n") == []
    start = 'import a\n\n\nif __name__ == "__main__":\n    main(1)\n'
    worker = "def worker():\n    main(1)\n\n\nif __name__"
    assert noises(start, start.replace("main(1)", "spawn(2)").replace("if __name__", worker)) == []
    method = "class A:\n    def f(self):\n        a(1)\n        b(2)\n"
    added = "class A:\n    def f(self):\n        b(2)\n\n    def g(self):\n        a(1)\n"
    assert noises(method, added) == []
    # Into one and to another place as well: the second is noise, wherever it stands.
    old = "def f():\n    a(1)\n    b(2)\n\n\ndef h():\n    c(3)\n"
    both = "def f():\n    b(2)\n\n\ndef g():\n    a(1)\n\n\ndef h():\n    a(1)\n    c(3)\n"
    assert noises(old, both) == ["new.py:10: 'a(1)' is only moved here from line 2 of old.py"]


def test_a_renamed_function_is_told_though_definitions_are_aligned_by_name():
    found = noises("def save(x):\n    f(x)\n", "def store(x):\n    f(x)\n")
    assert "new.py:1: 'save' is only renamed to 'store'" in found


def test_the_docstring_may_be_reworded_and_laid_out_as_it_must():
    old, new = '"""One.\n\nTwo or three,\nfour.\n"""\n', '"""One.\nFour,\n\nTwo or three,\n"""\n'
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

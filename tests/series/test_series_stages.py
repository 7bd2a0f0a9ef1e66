"""Stages: their scripts, the commands that show, compare and run them, and lint."""

import os
import re
import subprocess
import sys

import pytest

from tests.processes import ROOT
from tools import series
from tools.series import stages
from tools.series.__main__ import main
from tools.series.lint import lint
from tools.series.model import Observation

OLD = ['"""Says hello.', "", "    python a.py", '"""', "", 'print("hello")']
NEW = [
    '"""Says hello.', "", "    python b.py", '"""', "", "import sys", "", 'print("good day")',
    "print(*sys.argv[1:])",
]  # fmt: skip
FIRST = '"docstring", { in = "module", match = "hello|good day" }'
SECOND = '"imports", { in = "module", match = "argv" }'


@pytest.fixture
def two(tree):
    """b.py is a.py with two edits: another greeting, then the arguments."""
    (tree.root / "README.md").write_text("<!-- lessons:begin -->\n<!-- lessons:end -->\n")
    tree.become_two(OLD, NEW, FIRST, SECOND)
    for file in (tree.root / "beyond").glob("*.py"):
        file.unlink()
    text = tree.read("lessons.toml").replace('name = "0"', 'name = "0"\nshows = "^good"')
    tree.write("lessons.toml", text.replace('name = "1"', 'name = "1"\nshows = "^x y$"'))
    return tree


def run(tree, capfd, *arguments):
    status = main(["--root", str(tree.root), *arguments])
    return status, capfd.readouterr()


def stage_problems(tree):
    return [str(p) for p in lint(series.load(tree.root)) if p.file == "lessons.toml"]


def test_the_chain_begins_with_the_parent_and_ends_with_the_file():
    found = series.load(ROOT)
    assert found.with_stages == [lesson.name for lesson in found if lesson.parent]
    for lesson in map(found.__getitem__, found.with_stages):
        chain = stages.of(lesson)
        assert len(chain) == len(lesson.edits) + 1
        assert chain[0].source.text == lesson.parent.source.text
        assert chain[-1].source.text == (ROOT / lesson.file).read_text()
        assert len({stage.source.text for stage in chain}) == len(chain)


def test_each_stage_has_the_edits_before_it_and_no_other(two, capfd):
    shown = [run(two, capfd, "show", name)[1].out for name in ("b@0", "b@1", "b@2", "b")]
    assert shown[0] == "\n".join(OLD) + "\n"
    assert 'print("good day")' in shown[1] and "sys" not in shown[1]
    assert shown[2] == shown[3] == "\n".join(NEW) + "\n"
    files = [stage.file for stage in stages.of(series.load(two.root)["b"])]
    assert files == ["b_0.py", "b_1.py", "b.py"]


@pytest.mark.parametrize("arguments", [["b@1"], ["b@0", "b@1"], ["a", "b@1"], ["a.py", "b@1"]])
def test_diff_of_stages_and_files(two, capfd, monkeypatch, arguments):
    monkeypatch.chdir(two.root)
    status, said = run(two, capfd, "diff", *arguments)
    lines = said.out.splitlines()
    assert status == 0 and lines[1] == "+++ b@1"
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        "-    python a.py", "+    python b.py", '-print("hello")', '+print("good day")'
    ]  # fmt: skip


def test_run_passes_arguments_and_status_and_leaves_no_file(two, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    before = os.listdir(tmp_path)
    assert run(two, capfd, "run", "b@1", "x", "-y") == (0, ("good day\n", ""))
    assert run(two, capfd, "run", "b", "x", "-y") == (0, ("good day\nx -y\n", ""))
    two.edit("b.py", "print(*sys.argv[1:])", "sys.exit(len(sys.argv))")
    two.edit("lessons.toml", 'match = "argv"', 'match = "exit"')
    assert run(two, capfd, "run", "b@2", "x")[0] == 2
    assert os.listdir(tmp_path) == before


def test_run_refuses_an_option_of_a_later_edit(two, capfd):
    two.edit("lessons.toml", 'name = "1"\n', 'name = "1"\noptions = ["shout_it"]\n')
    status, said = run(two, capfd, "run", "b@1", "--shout-it=yes")
    assert (status, said.out) == (2, "")
    assert said.err == "b@1 makes no use of --shout_it: b@2 does ()\n"
    assert run(two, capfd, "run", "b@2", "--shout-it=yes")[0] == 0


def test_observe_tells_what_a_stage_shows(two, capfd):
    status, said = run(two, capfd, "observe", "b", "x", "y")
    assert (status, said.out) == (0, "b@1 shows 0, b@0 does not\nb@2 shows 1, b@1 does not\n")
    status, said = run(two, capfd, "observe", "b@1")
    assert said.out == (
        "--- b@0\n  hello\n--- b@1\n> good day\n"
        "--- > marks matches, as lessons.toml has shows = '^good'\nb@1 shows 0, b@0 does not\n"
    )
    two.edit("b.py", "good day", "\\n" * 30 + "good day")
    status, said = run(two, capfd, "observe", "b@1")
    assert "--- b@1 (13 lines left out)\n  \n" in said.out and "\n> good day\n" in said.out
    two.edit("b.py", "\\n" * 30, "")
    two.edit("lessons.toml", "^good", "o")  # which the stage before shows, too
    status, said = run(two, capfd, "observe", "b@1")
    assert (status, said.out) == (1, "b@0 shows 0 already:\nhello\n")
    two.edit("lessons.toml", "^x y$", "^x z$")
    status, said = run(two, capfd, "observe", "b@2", "x", "y")
    assert (status, said.out) == (1, "b@2 does not show 1:\ngood day\nx y\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "b@3"], "no stage 'b@3': b has @0 to @2"),
        (["show", "c@1"], "no lesson is called 'c'; there are: a, b"),
        (["show", "a@0"], "a has no stages; lessons with stages: b"),
        (["diff", "a"], "a has no parent to differ from"),
        (["diff", "b@1", "no.py"], "no.py is no lesson (a, b), and no file to read: "),
        (["observe", "a"], "a has no edit that says what it shows"),
        (["observe", "b@0"], "b@0 has no edit that says what it shows"),
    ],
)
def test_what_there_is_not_is_said_in_one_line(two, capfd, arguments, says):
    status, said = run(two, capfd, *arguments)
    assert status == 2 and said.out == ""
    assert said.err.startswith(says) and said.err.count("\n") == 1


def test_without_torch_run_says_where_it_is(two):
    words = ["-S", "-m", "tools.series", "--root", str(two.root), "run", "b"]
    process = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 2 and "has no torch: source .venv/bin/act" in process.stderr


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (f'{FIRST}, "imports"', '{ in = "module", match = "argv" }', "`sys` imported but unused"),
        ('"docstring", { in = "module", match = "o|argv" }', '"imports"', "Undefined name `sys`"),
    ],
)
def test_an_edit_has_what_it_uses_and_uses_what_it_has(two, first, second, says):
    pytest.importorskip("ruff", reason="no ruff: names of stages are not checked without it")
    two.edit("lessons.toml", f"[{FIRST}]", f"[{first}]")
    two.edit("lessons.toml", f"[{SECOND}]", f"[{second}]")
    (problem,) = stage_problems(two)
    assert "[b] b@1, line " in problem and says in problem


def test_a_stage_must_be_python(two):
    two.edit("b.py", 'print("good day")', 'if True:\n    print("good day")')
    two.edit("lessons.toml", f"[{FIRST}]", '["docstring", { in = "module", match = "if|hello" }]')
    two.edit("lessons.toml", "argv", "argv|good")
    (problem,) = stage_problems(two)
    assert "[b] b@1, line " in problem and "not valid Python" in problem


@pytest.mark.parametrize("nothing", ["", 'args = "x"\n'])
def test_every_edit_of_a_lesson_with_stages_says_what_it_shows(two, nothing):
    two.edit("lessons.toml", 'shows = "^good"\n', nothing)
    (problem,) = stage_problems(two)
    assert problem.endswith("[b] 0 says nothing of what it shows: add shows")


INTERIM = """[[b.edit.interim]]
in = "module"
before = "argv"
text = "print('meanwhile')"
until = "1"

"""


@pytest.fixture
def three(two):
    """Between the two edits, a line that is in neither script."""
    two.edit("lessons.toml", '[[b.edit]]\nname = "1"', INTERIM + '[[b.edit]]\nname = "1"')
    return two


def test_an_interim_line_stands_in_its_place_until_its_edit(three, capfd):
    shown = [run(three, capfd, "show", f"b@{number}")[1].out for number in range(3)]
    assert shown[1].endswith("print(\"good day\")\nprint('meanwhile')\n")
    assert "meanwhile" not in shown[0] + shown[2] and stage_problems(three) == []
    chain = stages.of(series.load(three.root)["b"])
    changes = [[line.sign + line.text for line in one.rows if line.counted] for one in chain[1:]]
    assert changes[0] == ['-print("hello")', '+print("good day")', "+print('meanwhile')"]
    assert changes[1] == ["+import sys", "-print('meanwhile')", "+print(*sys.argv[1:])"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('until = "1"', 'until = "0"', "[b.edit] until '0' is no edit below"),
        ('before = "argv"', 'before = "argz"', "b@1 has no line 'argz' in module for an interim"),
    ],
)
def test_an_interim_line_has_a_place_and_an_end(three, capfd, old, new, says):
    three.edit("lessons.toml", old, new)
    status, said = run(three, capfd, "show", "b@1")
    assert status == 2 and says in said.err


def test_an_edit_has_a_budget_that_counts_interim_lines(three):
    three.edit("lessons.toml", "budget = 9", "budget = 9\nedit_budget = 3")
    assert stage_problems(three) == []
    three.edit("lessons.toml", "edit_budget = 3", "edit_budget = 2")
    said = stage_problems(three)
    assert len(said) == 2 and "[b] 0 changes 3 lines, edit_budget 2: split it" in said[0]


@pytest.mark.parametrize(
    ("described", "outputs", "before", "holds"),
    [
        ({"same": "x (.)"}, ["x 1\nx 2", "x 2"], [], True),
        ({"same": "x (.)"}, ["x 1", "x 2"], [], False),
        ({"differs": "x (.)"}, ["x 1", "x 2"], [], True),
        ({"differs": "x (.)"}, ["x 1", ""], [], False),
        ({"lowers": "x (.)"}, ["x 1"], ["x 2"], True),
        ({"lowers": "x (.)"}, ["x 2"], ["x 2"], False),
        ({"shows": "x", "lacks": "y"}, ["x", "y"], [], False),
    ],
)
def test_outputs_are_held_against_what_is_described(described, outputs, before, holds):
    patterns = {key: re.compile(pattern) for key, pattern in described.items()}
    assert Observation(**patterns).holds(outputs, before) == holds


def test_a_second_run_has_its_own_arguments(two, capfd):
    two.edit("lessons.toml", "budget = 9", 'budget = 9\nobserve = "first"')
    two.edit("lessons.toml", 'shows = "^x y$"', "args = 'x'\nagain = 'z'\nsame = '(x .*)'")
    said = run(two, capfd, "observe", "b@2")[1].out
    assert said.endswith("does not show 1:\ngood day\nfirst x\ngood day\nfirst x z\n")

"""Stages: what their scripts are, how they are shown, compared and run, and what lint says."""

import os
import subprocess
import sys

import pytest

from tests.processes import ROOT
from tools import series
from tools.series import stages
from tools.series.__main__ import main
from tools.series.lint import lint

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
    for name in ("a", "b"):
        old = f'[{name}]\ntitle = ""\npage = ""\nrun = "true"'
        tree.edit("lessons.toml", old, old.replace("true", f"python {name}.py"))
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
    assert found.with_stages == ["multigpu", "multigpu_torchrun", "multinode"]
    for lesson in map(found.__getitem__, found.with_stages):
        chain = stages.of(lesson)
        assert len(chain) == len(lesson.edits) + 1
        assert chain[0].source.text == lesson.parent.source.text
        assert chain[-1].source.text == (ROOT / lesson.file).read_text()
        assert chain[-1].file == lesson.file and chain[1].file == f"{lesson.name}_1.py"
        texts = [stage.source.text for stage in chain]
        assert len(set(texts)) == len(texts)


def test_each_stage_has_the_edits_before_it_and_no_other(two, capfd):
    shown = [run(two, capfd, "show", name)[1].out for name in ("b@0", "b@1", "b@2", "b")]
    assert shown[0] == "\n".join(OLD) + "\n"
    assert 'print("good day")' in shown[1] and "sys" not in shown[1]
    assert shown[2] == shown[3] == "\n".join(NEW) + "\n"


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


def test_observe_tells_what_a_stage_shows(two, capfd):
    status, said = run(two, capfd, "observe", "b", "x", "y")
    assert (status, said.out) == (0, "b@1 shows 0, b@0 does not\nb@2 shows 1, b@1 does not\n")
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
        (["show", "b@two"], "no stage 'b@two': b has @0 to @2"),
        (["show", "c@1"], "no lesson is called 'c'; there are: a, b"),
        (["show", "a@0"], "a has no stages; lessons with stages: b"),
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


def test_a_good_chain_has_no_problems(two):
    assert stage_problems(two) == []


def test_an_import_belongs_to_the_edit_that_uses_it(two):
    pytest.importorskip("ruff", reason="no ruff: names of stages are not checked without it")
    two.edit("lessons.toml", f"[{FIRST}]", f'[{FIRST}, "imports"]')
    two.edit("lessons.toml", f"[{SECOND}]", '[{ in = "module", match = "argv" }]')
    (problem,) = stage_problems(two)
    assert "[b] b@1, line 6: F401" in problem and "`sys` imported but unused" in problem


def test_a_name_must_be_there(two):
    pytest.importorskip("ruff", reason="no ruff: names of stages are not checked without it")
    two.edit("lessons.toml", f"[{FIRST}]", '["docstring", { in = "module", match = "o|argv" }]')
    two.edit("lessons.toml", f"[{SECOND}]", '["imports"]')
    (problem,) = stage_problems(two)
    assert "[b] b@1, line " in problem and "F821 Undefined name `sys`" in problem


def test_a_stage_must_be_python(two):
    two.edit("b.py", 'print("good day")', 'if True:\n    print("good day")')
    two.edit("lessons.toml", f"[{FIRST}]", '["docstring", { in = "module", match = "if|hello" }]')
    two.edit("lessons.toml", "argv", "argv|good")
    (problem,) = stage_problems(two)
    assert "[b] b@1, line " in problem and "not valid Python" in problem


def test_every_edit_of_a_lesson_with_stages_says_what_it_shows(two):
    two.edit("lessons.toml", 'shows = "^good"\n', "")
    (problem,) = stage_problems(two)
    assert problem.endswith("[b] 0 says nothing of what it shows: add shows")


def test_the_manifest_refuses_what_it_cannot_search(two, capfd):
    two.edit("lessons.toml", "^good", "(")
    status, said = run(two, capfd, "show", "b")
    assert status == 2 and "shows '(' is not a regular expression" in said.err
    two.edit("lessons.toml", 'shows = "("', 'shows = "x"\nfault = "flood"')
    assert "fault 'flood' is none of kill, raise, " in run(two, capfd, "show", "b")[1].err
    two.edit("lessons.toml", 'shows = "x"\nfault = "flood"', "processes = 2")
    assert "processes without shows or lacks" in run(two, capfd, "show", "b")[1].err

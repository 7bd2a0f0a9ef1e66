"""Parts of the pages' machinery, each alone: changed words, and running commands."""

import subprocess
import uuid

import psutil
import pytest

from tests.processes import ROOT

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")

from docs._ext import around, recipe
from docs._ext.code import changed_words, highlight, mark
from tools.pages import shell
from tools.pages.keys import Keys


def words(lines, spans):
    return [[line[a:b] for a, b in spans] for line, spans in zip(lines, spans, strict=True)]


def test_changed_words_of_lines_that_are_alike():
    old = ["    sampler = RandomSampler(dataset)", "    return None"]
    new = ["    rank = 0", "    sampler = DistributedSampler(dataset, seed=0)", "    return True"]
    removed, added = changed_words(old, new)
    assert words(old, removed) == [["RandomSampler"], ["None"]]
    assert words(new, added) == [[], ["DistributedSampler", ", seed=0"], ["True"]]
    assert changed_words(["x = 1"], ["for epoch in range(10):"]) == ([[]], [[]])  # not alike


def test_a_line_as_html_is_coloured_by_what_surrounds_it_and_marked_by_columns():
    begins, _, within, *_ = highlight('def f():\n    """One\n    <b>&amp; "two"</b>\n    """\n')
    assert "<mark>f</mark>" in mark(begins, [(4, 5)])
    assert mark(within, [(4, 7), (13, 18)]) == (
        '<span class="sd">    <mark>&lt;b&gt;</mark>&amp;amp; <mark>"two"</mark>'
        "&lt;/b&gt;</span>"
    )


# Commands ---------------------------------------------------------------------------------------


def test_paths_of_packages_are_short_also_where_the_environment_is_a_link(tmp_path, monkeypatch):
    link = tmp_path / ".venv"
    link.symlink_to(tmp_path / "made")
    monkeypatch.setattr(shell.sys, "prefix", str(link))
    for venv in (link, tmp_path / "made"):
        output = f"{venv}/lib/python3.11/site-packages/torch/run.py of {venv}/bin/python"
        assert shell._without_places(output, str(tmp_path / "run")) == "torch/run.py of python"


def test_lines_run_in_order_in_one_copy_of_the_scripts_without_our_variables(monkeypatch):
    for name in ("RANK", "NPROC", "PYTHONUNBUFFERED", "PAGES_BUILD", "KEPT"):
        monkeypatch.setenv(name, "ours")
    before = state_of(ROOT)
    ran = shell.run([
        "pwd; echo new > utils.py; cmp single_gpu.py single_gpu.py && ls lessons.toml",
        "cat utils.py; env | grep =ours; echo $COLUMNS; touch $TMPDIR/x multigpu.pt",
        "python -c 'import sys; print(sys.prefix); sys.stderr.write(\"to stderr\\n\")'",
    ])  # fmt: skip
    assert [one.status for one in ran] == [0, 0, 0]
    assert ran[0].output == ".\nlessons.toml\n"
    assert ran[1].output == f"new\nKEPT=ours\n{shell.COLUMNS}\n"
    assert "to stderr" in ran[2].output
    assert state_of(ROOT) == before


def state_of(folder):
    """Names, sizes and times of what a command might touch."""
    paths = [*folder.glob("*"), *folder.glob("docs/*"), *folder.glob("tools/series/*")]
    facts = {path: path.stat() for path in paths if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in facts.items()}


def test_what_a_line_leaves_behind_is_ended():
    token = uuid.uuid4().hex
    child = f"exec -a {token} sleep 3000"
    lines = [f"(setsid bash -c '{child}' >/dev/null 2>&1 &) ; echo started", "sleep 0.5; echo on"]
    assert shell.run(lines)[0].output == "started\n"
    left = [p for p in psutil.process_iter(["cmdline"]) if token in str(p.info["cmdline"])]
    for process in left:
        process.kill()
    assert not left


def test_a_file_that_git_does_not_track_is_not_copied_and_nothing_depends_on_it(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shell, "ROOT", tmp_path)
    for name in ("start.py", "one.py", "mingpt/main.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("import one, two, pkg\n")
    (tmp_path / "gone.py").touch()
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "gone.py").unlink()
    for name in ("two.py", "start.pt", "mingpt/x.bin", "mingpt/__pycache__/main.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\xff")
    (tmp_path / ".#start.py").symlink_to("nowhere")
    line = "python start.py start.pt; rm two.py gone.py; python -m mingpt.main"
    found = Keys(tmp_path).dependencies([line])
    assert [path.name for path in found] == ["main.py", "one.py", "start.py"]
    (ran,) = shell.run(["find . -type f | sort"])
    assert ran.output.split() == ["./mingpt/main.py", "./one.py", "./start.py"]


# Recipes ----------------------------------------------------------------------------------------


def test_a_recipe_shows_its_commands_whole_and_without_remarks():
    text = (
        "# It runs by\n#\n#   one --a \\\n#       two\n#   three   (and more)\n#\n#   no command\n"
    )
    assert recipe.usage(text) == ["one --a two", "three"]


def test_a_link_to_the_page_of_a_deleted_lesson_is_its_name():
    def shown(target):
        return around.name_of_deleted(None, None, {"reftype": "doc", "reftarget": target}, "name")

    assert [shown("beyond_uneven"), shown("beyond_unevn"), shown("nope")] == ["name", None, None]

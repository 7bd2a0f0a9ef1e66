"""Parts of the pages' machinery, each alone: changed words, and running commands."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from tests.processes import ROOT

pytest.importorskip("pygments", reason="no pygments: make docs installs it")

from docs._ext.code import changed_words, highlight, mark
from tools.errors import UserError
from tools.pages import shell


def words(lines, spans):
    return [[line[a:b] for a, b in spans] for line, spans in zip(lines, spans, strict=True)]


def test_changed_words_of_lines_that_are_alike():
    old = ["    sampler = RandomSampler(dataset)", "    return None"]
    new = ["    rank = 0", "    sampler = DistributedSampler(dataset, seed=0)", "    return True"]
    removed, added = changed_words(old, new)
    assert words(old, removed) == [["RandomSampler"], ["None"]]
    assert words(new, added) == [[], ["DistributedSampler", ", seed=0"], ["True"]]


def test_lines_that_are_not_alike_have_no_counterpart():
    assert changed_words(["x = 1"], ["for epoch in range(10):"]) == ([[]], [[]])


def test_a_line_as_html_is_coloured_by_what_surrounds_it_and_marked_by_columns():
    begins, _, within, *_ = highlight('def f():\n    """One\n    <b>&amp; "two"</b>\n    """\n')
    assert "<mark>f</mark>" in mark(begins, [(4, 5)])
    assert mark(within, [(4, 7), (13, 18)]) == (
        '<span class="sd">    <mark>&lt;b&gt;</mark>&amp;amp; <mark>"two"</mark>'
        "&lt;/b&gt;</span>"
    )


# Commands ---------------------------------------------------------------------------------------


def names(paths):
    return {str(path.relative_to(ROOT)) for path in paths}


def test_dependencies_of_a_command_are_the_scripts_it_names_and_what_they_import():
    one = names(shell.dependencies(["python multigpu.py 5 1"]))
    assert one == {"multigpu.py", "utils.py", "guard.py"}
    both = names(shell.dependencies(["cp single_gpu.py x.py", "diff x.py multinode.py"]))
    assert both == {"single_gpu.py", "multinode.py", "utils.py", "guard.py"}
    assert shell.dependencies(["echo single_gpu", "true"]) == []
    of_series = names(shell.dependencies(["python -m tools.series tree"]))
    assert of_series >= {"tools/series/diff.py", "tools/series/__main__.py", "lessons.toml",
                         "multinode.py", "utils.py"}  # fmt: skip
    assert not any(name.startswith("docs/") for name in of_series)
    of_chain = names(shell.dependencies(["python -m tools.series run classifier_ddp@1"]))
    assert of_chain >= {f"docs/port/{name}" for name in ("lessons.toml", "classifier.py")}


def test_dependencies_are_followed_through_packages_and_relative_imports(tmp_path, monkeypatch):
    monkeypatch.setattr(shell, "ROOT", tmp_path)
    files = {
        "start.py": "import one\nfrom pkg.deep import thing\n",
        "one.py": "def late():\n    from two import x\n",
        "two.py": "import one, os, no_such_module\n",
        "pkg/__init__.py": "from . import tail\n",
        "pkg/deep.py": "from .sibling import x\nfrom .. import nothing\n",
        "pkg/sibling.py": "",
        "pkg/tail.py": "",
        "other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = shell.dependencies(["python start.py"])
    assert {str(path.relative_to(tmp_path)) for path in found} == set(files) - {"other.py"}


def test_lines_run_in_order_in_one_copy_of_the_scripts():
    before = state_of(ROOT)
    ran = shell.run([
        "pwd; echo new > utils.py; cmp single_gpu.py single_gpu.py && ls lessons.toml",
        "cat utils.py; echo $NPROC:$RANK:${COLUMNS}; touch $TMPDIR/x multigpu.pt",
        "python -c 'import sys; print(sys.prefix); sys.stderr.write(\"to stderr\\n\")'",
    ])  # fmt: skip
    assert [one.status for one in ran] == [0, 0, 0]
    assert ran[0].output == ".\nlessons.toml\n"
    assert ran[1].output == f"new\n::{shell.COLUMNS}\n"
    assert "to stderr" in ran[2].output
    assert state_of(ROOT) == before


def state_of(folder):
    """Names, sizes and times of what a command might touch."""
    paths = [*folder.glob("*"), *folder.glob("docs/*"), *folder.glob("tools/series/*")]
    facts = {path: path.stat() for path in paths if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in facts.items()}


def test_the_variables_of_a_launcher_do_not_reach_a_command(monkeypatch):
    names = ("RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "NPROC",
             "PYTHONUNBUFFERED", "PAGES_RUNS")  # fmt: skip
    for name in (*names, "KEPT"):
        monkeypatch.setenv(name, "launcher")
    assert re.findall(r"(\w+)=launcher\n", shell.run(["env"])[0].output) == ["KEPT"]


def test_the_first_failure_is_the_last_line_that_runs():
    ran = shell.run(["echo one", "echo two; exit 3", "echo three"])
    assert [(one.output, one.status) for one in ran] == [("one\n", 0), ("two\n", 3)]
    assert shell.run(["false | cat"])[0].status == 1


def test_a_line_that_does_not_end_is_killed_and_says_what_it_printed():
    said = r"still running after 1 s: echo begun; sleep 3000\nbegun"
    with pytest.raises(UserError, match=said):
        shell.run(["echo begun; sleep 3000"], timeout=1)


def test_what_a_line_leaves_behind_is_ended():
    token = uuid.uuid4().hex
    child = f"exec -a {token} sleep 3000"
    lines = [f"(setsid bash -c '{child}' >/dev/null 2>&1 &) ; echo started", "sleep 0.5; echo on"]
    assert shell.run(lines)[0].output == "started\n"
    left = [p for p in psutil.process_iter(["cmdline"]) if token in str(p.info["cmdline"])]
    for process in left:
        process.kill()
    assert not left


def test_sigkill_leaves_neither_processes_nor_folders(tmp_path):
    """Nor part of an entry in the cache."""
    token = uuid.uuid4().hex
    lines = [f"(setsid bash -c 'exec -a {token} sleep 3000' &) ; pwd; exec -a {token} sleep 3001"]
    code = (
        f"from pathlib import Path; from tools.pages import shell; cache = Path({str(tmp_path)!r})"
    )
    code += f"; shell.run({lines}, 3000, cache / 'runs')"
    places = {**os.environ, "TMPDIR": str(tmp_path)}

    def ours():
        found = psutil.process_iter(["cmdline"])
        return [process for process in found if token == (process.info["cmdline"] or [""])[0]]

    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=places) as process:
        wait_until(lambda: len(ours()) == 2)
        process.kill()
    try:
        wait_until(lambda: not ours() and not list(tmp_path.iterdir()))
    finally:
        for process in ours():
            process.kill()


def wait_until(true, limit=60):
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"not true after {limit} s"
        time.sleep(0.1)


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
    found = shell.dependencies(["python start.py start.pt; rm two.py gone.py; python -m mingpt"])
    assert [path.name for path in found] == ["main.py", "one.py", "start.py"]
    (ran,) = shell.run(["find . -type f | sort"])
    assert ran.output.split() == ["./mingpt/main.py", "./one.py", "./start.py"]


def test_the_cache_keeps_what_ended_well_until_a_file_changes(tmp_path, monkeypatch):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("lessons.toml", "single_gpu.py", "utils.py"):
        shutil.copy(ROOT / name, scripts)
    monkeypatch.setattr(shell, "ROOT", scripts)
    seen, cache = tmp_path / "seen", tmp_path / "cache"
    line = f"wc -l single_gpu.py; echo x >> {seen}"

    def times(lines=(line,), **options):
        ran = shell.run(list(lines), cache=cache, **options)
        return ran, len(seen.read_text().split())

    first, count = times()
    assert count == 1
    assert times() == (first, 1)
    (scripts / "utils.py").write_text("# single_gpu.py imports it\n")
    assert times()[1] == 2
    assert times()[1] == 2
    assert times([line, "true"])[1] == 3  # another command
    for _ in range(2):  # a failure, or output that does not match, runs again
        before = len(seen.read_text().split())
        assert times([line, "false"])[1] == before + 1
        assert times([line, "echo"], keep=lambda ran: False)[1] == before + 2
    assert times([line, "exit 3"], keep=lambda ran: ran[-1].status == 3)[1] == 8
    assert times([line, "exit 3"])[1] == 8
    assert all(json.loads(path.read_text()) for path in cache.iterdir())
    assert not [path for path in cache.iterdir() if path.name.startswith(".")]


def test_a_recipe_that_no_test_names_is_no_recipe_of_the_page(tmp_path):
    """A name in a comment does not count: docs/_ext/recipe.py."""
    from docs._ext import recipe

    test = tmp_path / "test_it.py"
    test.write_text('run("launch/slurm.sh")  # not other.sh\n# nor third.sh\n')
    named = [name for name in ("slurm.sh", "other.sh", "third.sh") if recipe.names(test, name)]
    assert named == ["slurm.sh"]


def test_a_recipe_shows_its_commands_whole():
    """Also those of several lines, without the remarks after them."""
    from docs._ext import recipe

    text = (
        "# It runs by\n#\n#   one --a \\\n#       two\n#   three   (and more)\n#\n#   no command\n"
    )
    assert recipe.usage(text) == ["one --a two", "three"]

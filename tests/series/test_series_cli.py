"""What the commands print, and what the package must not do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.series.__main__ import main

ROOT = Path(__file__).parents[2]


def run(tree, capsys, *arguments):
    status = main(["--root", str(tree.root), *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_the_diff_of_an_edit_shows_its_lines_in_context(tree, capsys):
    """The edit changes the stage before it, so later edits are not in its diff."""
    status, out = run(tree, capsys, "diff", "two", "--edit", "distribute-the-data")
    assert status == 0
    assert (
        out
        == """\
--- one.py
+++ two.py

two@2 distribute-the-data: Distributing the data (3 added, 3 removed)
@@ imports @@
 import torch
-from torch.utils.data import DataLoader, RandomSampler
 import torch.distributed as dist
 import torch.multiprocessing as mp
+from torch.utils.data import DataLoader, DistributedSampler

 import utils
@@ Trainer._run_epoch @@
     def _run_epoch(self, epoch):
-        self.train_data.sampler.generator.manual_seed(epoch)
+        self.train_data.sampler.set_epoch(epoch)
         total = torch.zeros(1)
         for batch in self.train_data:
@@ prepare_dataloader @@
 def prepare_dataloader(dataset, batch_size):
-    sampler = RandomSampler(dataset, generator=torch.Generator())
+    sampler = DistributedSampler(dataset)
     return DataLoader(dataset, batch_size, sampler=sampler)

23 of 25 changed lines: 19 added, 4 removed
"""
    )


def test_the_diff_of_a_lesson_shows_each_changed_line_once_in_the_order_of_the_edits(tree, capsys):
    assert "in no edit" not in run(tree, capsys, "diff", "three")[1]
    tree.edit("lessons.toml", '["Trainer.__init__", "Trainer._load', '["Trainer._load')
    assert "in no edit" not in run(tree, capsys, "diff", "three", "--edit", "resume")[1]
    _, out = run(tree, capsys, "diff", "three")
    assert "\nthree@1 leave-it-to-torchrun: Leaving the processes to torchrun (5 added, " in out
    assert "@@ Trainer._load_checkpoint @@\n" in out
    titles = ["leave-it-to-torchrun: ", "resume: Going on", "in no edit, or in several"]
    places = [out.index(title) for title in titles]
    assert places == sorted(places)
    assert out.index("+        self.epochs_run = 0") > places[2]
    signs = [line[0] for line in out.splitlines()[2:] if line[:1] in ("+", "-")]
    assert (signs.count("+"), signs.count("-")) == (13, 11)


def test_the_tree_is_indented_by_parents(tree, capsys):
    assert run(tree, capsys, "tree") == (0, '''\
one                  One device
  two      23 of 25  All devices
    three  18 of 20  Restarts
''')  # fmt: skip


def test_the_table_is_what_the_readme_has(tree, capsys):
    tree.edit("lessons.toml", '"All devices"', '"a|b"')
    status, out = run(tree, capsys, "table")
    assert status == 0 and out not in tree.read("README.md")
    assert r"| [two.py](two.py) | a\|b | `OMP_NUM_THREADS=1 python" in out
    assert "beyond" not in out  # the README lists the chain alone
    assert run(tree, capsys, "table", "--write") == (0, "")
    readme = tree.read("README.md")
    assert readme.startswith("# Counting\n")
    assert f"\n<!-- lessons:begin -->\n{out}<!-- lessons:end -->\n\nGo on with" in readme
    run(tree, capsys, "table", "--write")
    assert tree.read("README.md") == readme


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["diff", "tow"], "no lesson is called 'tow'; there are: one, two, three\n"),
        (["diff", "two", "--edit", "x"], "no edit of two is called 'x'; there are: start-proc"),
        (["diff", "one"], "one has no parent to differ from\n"),
        (["table", "--write"], "[Errno 2] No such file or directory: "),
    ],
)
def test_what_cannot_be_done_is_one_line(tree, capsys, arguments, message):
    (tree.root / "README.md").unlink()
    status, out = run(tree, capsys, *arguments)
    assert status == 2 and out.startswith(message) and out.count("\n") == 1


def test_a_command_is_required(capsys):
    with pytest.raises(SystemExit, match="2"):
        main([])
    assert "required: COMMAND" in capsys.readouterr().err


def test_neither_torch_nor_anything_else_to_install_is_imported(tree):
    """In an interpreter without site packages, and with torch blocked."""
    code = (
        "import runpy, sys; sys.modules['torch'] = None; "
        f"sys.argv = ['series', '--root', {str(tree.root)!r}, 'lint']; "
        "runpy.run_module('tools.series', run_name='__main__')"
    )
    command = [sys.executable, "-S", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(": no problems\n")


def test_a_reader_that_goes_early_is_no_error():
    command = [sys.executable, "-m", "tools.series", "--root", str(Path(__file__).parent / "good")]
    writer = subprocess.Popen(
        [*command, "diff", "two"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": ""},  # so that the pipe breaks as late as it can
    )  # fmt: skip
    writer.stdout.close()
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(60) == 0


def test_stages_of_a_chain_in_docs_are_found_by_their_names(tree, capsys):
    """A chain of self-contained scripts needs neither utils.py nor a README."""
    folder = tree.root / "docs" / "chain"
    folder.mkdir(parents=True)
    script = '"""Says so.\n\n    python docs/chain/alone.py\n"""\n\nprint("alone")\n'
    (folder / "alone.py").write_text(script)
    (folder / "beside.py").touch()
    (folder / "lessons.toml").write_text(
        '[alone]\ntitle = ""\n'
    )
    assert run(tree, capsys, "show", "alone") == (0, script)
    assert run(tree, capsys, "show", "one")[0] == 0
    assert main(["--root", str(folder), "lint"]) == 0

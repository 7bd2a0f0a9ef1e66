"""What the commands print, and what the package must not do."""

import os
import subprocess
import sys
from pathlib import Path

from tools import series
from tools.series.__main__ import main

ROOT = Path(__file__).parents[2]


def run(tree, capsys, *arguments):
    status = main(["--root", str(tree.root), *arguments])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_the_diff_of_a_lesson_shows_how_each_edit_changes_the_stage_before(tree, capsys):
    """So later edits are not in an edit's diff, and each changed line is shown once."""
    status, out = run(tree, capsys, "diff", "two")
    head, *edits = out.split("\n\ntwo@")
    assert status == 0 and head == "--- one.py\n+++ two.py"
    of_second = """\
2 distribute-the-data: Distributing the data (3 added, 3 removed)
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
     return DataLoader(dataset, batch_size, sampler=sampler)"""
    assert edits[1] == of_second
    names = ["1 start-processes", "2 distribute-the-data", "3 sum-over-all"]
    assert [edit.partition(":")[0] for edit in edits] == names
    assert out.endswith("\n\n23 of 25 changed lines: 19 added, 4 removed\n")
    changed = [row.sign + row.text for row in series.load(tree.root)["two"].diff()]
    shown = [line for line in out.splitlines()[2:] if line[:1] in ("+", "-")]
    assert sorted(shown) == sorted(changed)


def test_the_tree_is_indented_by_parents(tree, capsys):
    assert run(tree, capsys, "tree") == (0, '''\
one                  One device
  two      23 of 25  All devices
    three  18 of 20  Restarts
''')  # fmt: skip


def test_the_readmes_table_is_brought_up_to_date(tree, capsys):
    old = tree.read("README.md")
    tree.edit("lessons.toml", '"All devices"', '"a|b"')
    assert run(tree, capsys, "table") == (0, "")
    assert tree.read("README.md") == old.replace("All devices", r"a\|b")


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

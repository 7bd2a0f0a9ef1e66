"""Shards of a GPT: a kill while they are written loses none. The page reads them at any size."""

import os
import signal
import sys

from tests.faults import leftovers, same, slow_saves
from tests.mingpt.conftest import options, python
from tests.processes import ONCE, ROOT, STANDALONE, Process, run
from tools import processes


def whole(folder):
    """The file that one_file.py makes of the shards in `folder`."""
    file = folder / "whole.pt"
    file.unlink(missing_ok=True)
    words = [sys.executable, f"{ROOT}/docs/labs/one_file.py", "dcp.pt", file.name]
    made = processes.run(words, cwd=folder, limit=60)
    assert made.status == 0, made.out
    return file


def train(folder, *words):
    folder.mkdir(exist_ok=True)
    ended = run("dcp", *words, cwd=folder, launcher=STANDALONE)
    assert ended.status == 0, ended.tail


def test_a_worker_killed_while_shards_are_written_changes_nothing(text, tmp_path):
    words = options(data=text)
    train(tmp_path / "once", *words)
    folder = tmp_path / "killed"
    folder.mkdir()
    env = slow_saves(tmp_path / "slow", seconds=1)
    with Process("dcp", *words, cwd=folder, env=env, launcher=STANDALONE) as it:
        seen = it.wait_for(r"Step +18 \| train")  # the save of step 16 takes seconds
        assert not (folder / "dcp.pt.shards/16/.metadata").exists()
        os.kill(it.workers()[1], signal.SIGKILL)
        it.wait_for("Resuming after step 8", seen)
        assert it.wait() == 0, it.tail
    assert same(whole(tmp_path / "once"), whole(folder))
    assert sorted(leftovers(folder)) == ["data", "dcp.jsonl", "dcp.pt", "dcp.pt.shards", "whole.pt"]
    assert os.listdir(folder / "dcp.pt.shards") == ["24"]


def test_what_cannot_be_saved_or_found_is_said(text, tmp_path):
    train(tmp_path, *options(data=text, total_steps=8))
    shards, wild = tmp_path / "dcp.pt.shards", {"learning_rate": 1e30, "grad_clip": 1e30}

    def fails(said, **others):
        ended = run("dcp", *options(data=text, **others), cwd=tmp_path, launcher=ONCE)
        assert ended.status != 0 and said in ended.tail, ended.tail

    fails("weights are not finite", **wild)
    assert os.listdir(shards) == ["8"]
    sampled = python("sample", "--checkpoint_path", "dcp.pt", cwd=tmp_path)
    assert "dcp.pt has no weights, only dcp.pt.shards has: " in sampled.stderr
    shards.rename(tmp_path / "away")
    fails("dcp.pt needs dcp.pt.shards/8: copy it here, too")
    (tmp_path / "dcp.pt").unlink()
    shards.write_text("a file in the way")
    fails("cannot save shards: ")

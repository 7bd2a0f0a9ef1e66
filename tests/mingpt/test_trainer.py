"""The curve does not depend on how many processes share a step. A stopped run loses nothing."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mingpt.model import GPT, GPTConfig
from tests.faults import leftovers, same, slow_saves
from tests.lessons import distance
from tests.mingpt import texts
from tests.mingpt.conftest import TINY, options, python
from tests.mingpt.texts import curve, log
from tests.mingpt.threads import train
from tests.mistakes import ALONE
from tests.processes import ONCE, ROOT, SHARED, STANDALONE, Process, environment, run
from tools import processes

# ranks, and what else differs
SPLITS = {
    "1": (1, {}), "2": (2, {}), "4": (4, {}), "8": (8, {}),
    "accumulated": (2, {"micro_batch_size": 1}),
}  # fmt: skip
COMPILING = 600  # seconds; it catches hangs, but a busy machine compiles for minutes
WHOLE, LAST = TINY["save_every"], TINY["total_steps"]
STRICT = {"PYTHONPATH": str(Path(__file__).with_name("strict"))}  # reports a group that is left


@pytest.fixture(scope="module")
def trained(text, tmp_path_factory):
    """What `train` returns for each of SPLITS."""
    folder = tmp_path_factory.mktemp("splits")
    return {
        name: train(folder / name, text, size, **others) for name, (size, others) in SPLITS.items()
    }


@pytest.mark.parametrize("split", list(SPLITS)[1:])
def test_the_same_training_however_a_step_is_split(split, trained):
    reference, found = trained["1"], trained[split]
    for one, other in ((found.val, reference.val), (found.train, reference.train)):
        assert list(one) == list(other) and one == pytest.approx(other, abs=1e-5)
    assert min(found.val.values()) < max(found.val.values()) - 0.2  # and the model has learned
    assert distance(found.checkpoint, reference.checkpoint) < 1e-4


@pytest.mark.parametrize("split", SPLITS)
def test_every_token_is_validated_once(split, trained):
    # a tenth of 5,007 characters; the first has none before it
    assert set(re.findall(r"val loss .* over ([\d,]+) tokens", trained[split].out)) == {"499"}


def test_save_every_means_its_number(trained):
    saved = re.findall(r"Step +(\d+) \| checkpoint saved", trained["1"].out)
    assert list(map(int, saved)) == [WHOLE, 2 * WHOLE, LAST]


@pytest.mark.parametrize("kind, entropy, floor, ceiling", [
    ("uniform", 2.7726, -0.01, 0.05),  # ln 16: a lower loss means the model sees its targets
    ("markov", 0.8979, -0.03, 0.02),
])  # fmt: skip
def test_learns_to_the_entropy_of_the_source_and_no_further(
    kind, entropy, floor, ceiling, tmp_path
):
    path = tmp_path / "text"
    path.write_text(getattr(texts, kind)(200_000))
    often = {"eval_every": 400, "log_every": 100, "save_every": 1000}
    size = {"batch_size": 32, "total_steps": 400, "learning_rate": 0.01, "weight_decay": 0.0}
    loss = train(tmp_path, path, 1, **size, **often).val[400]
    assert entropy * (1 + floor) < loss < entropy * (1 + ceiling)
    assert all(0.5 < share < 1 for share in curve(tmp_path, "computing", name="0").values())


@pytest.mark.parametrize(("before", "whole", "most"), [(2, 1, 1e-4), (4, 4, 0)])
def test_four_processes_resume(before, whole, most, text, tmp_path):
    """What another number of processes has saved, nearly; what four have saved, exactly."""
    rate = {"learning_rate": 1e-3, "min_learning_rate": 1e-3}  # constant, whatever the total
    first = train(tmp_path / "first", text, before, total_steps=12, **rate)
    resumed = train(tmp_path / "resumed", text, 4, start=first.checkpoint, **rate)
    undisturbed = train(tmp_path / "whole", text, whole, **rate)
    assert "Resuming after step 12" in resumed.out
    assert distance(resumed.checkpoint, undisturbed.checkpoint) <= most


@pytest.mark.soak  # minutes of a C++ compiler
def test_the_same_curve_when_compiled(trained, text, tmp_path):
    if not shutil.which("g++"):
        pytest.skip("no g++, by which torch compiles for a CPU")
    words = [*options(data=text, dropout=0), "--compile"]
    env = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled"), **SHARED, **STRICT}
    with Process("mingpt", *words, cwd=tmp_path, launcher=ONCE, env=env) as it:
        it.wait_for(r"Step +5 \| train", limit=COMPILING)
        os.kill(it.process.pid, signal.SIGTERM)
        assert it.wait() != 0 and "are left" not in it.err
    process = run("mingpt", *words, cwd=tmp_path, nproc=2, env=env, launcher=ONCE, limit=COMPILING)
    assert process.status == 0 and "are left" not in process.err, process.tail
    stopped = int(re.search(r"Resuming after step (\d+)", process.out)[1])
    assert any((tmp_path / "compiled").iterdir())
    reference = dict(trained["1"].val)
    reference.pop(stopped, None)  # once told to stop, it skipped validation
    assert curve(tmp_path) == pytest.approx(reference, abs=1e-4)


@pytest.fixture(scope="module")
def undisturbed(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    process = run("mingpt", *options(data=text), cwd=folder, launcher=STANDALONE)
    assert (process.status, process.err) == (0, ""), process.tail
    return folder / "mingpt.pt"


def test_the_checkpoint_is_complete_and_writes_text_on_one_cpu(undisturbed):
    checkpoint = torch.load(undisturbed, weights_only=True)
    assert set(checkpoint) >= {
        "model", "optimizer", "scaler", "rng", "steps_run", "model_config", "text"
    }  # fmt: skip
    assert checkpoint["steps_run"] == LAST and len(checkpoint["rng"]) == 2
    GPT(GPTConfig(**checkpoint["model_config"])).load_state_dict(checkpoint["model"])
    ends = []
    for _ in range(2):  # the same seed, the same text
        words = ("--prompt", "abc", "--count", 40)
        ended = python("sample", *words, cwd=undisturbed.parent)
        assert (ended.returncode, ended.stderr) == (0, "")
        ends.append(ended.stdout.splitlines()[-1])
    assert ends[0] == ends[1] and re.fullmatch("abc[a-h]{40}", ends[0])


def test_each_rank_drops_other_units(undisturbed):
    one, two = (state["cpu"] for state in torch.load(undisturbed)["rng"])
    assert not torch.equal(one, two)


def repeated(lines, every=WHOLE, end=LAST):
    """How many steps the worst restart ran again, by the trainer's lines.

    A restart resumes from the last checkpoint that was due, or from the one before if that was
    still being written. It never goes back behind one that the trainer reported as saved.
    """
    worst = done = saved = 0
    for line in lines:
        found = re.match(r"Step +(\d+) \| (train|checkpoint saved)", line)
        if found and found[2] == "checkpoint saved":
            saved = int(found[1])
        elif found:
            resumed = int(found[1]) - 1
            assert max(saved, ((done - 1) // every - 1) * every) <= resumed <= done
            worst, done = max(worst, done - resumed), resumed + 1
    assert done == end
    return worst


def test_killed_workers_change_nothing(undisturbed, text, tmp_path):
    env, start = slow_saves(tmp_path / "slow"), r"Step +1 \| train|Resuming after step"
    with Process(
        "mingpt", *options(data=text), cwd=tmp_path, env=env, launcher=STANDALONE
    ) as it:  # fmt: skip
        seen = it.wait_for(r"Step +6 \| train")
        os.kill(it.workers()[1], signal.SIGKILL)  # a rank that does not save
        seen = it.wait_for(start, seen)  # from the first step, if no checkpoint was complete
        seen = it.wait_for("checkpoint saved", seen)
        os.kill(it.workers()[0], signal.SIGKILL)  # the one that saves, perhaps while it writes
        seen = it.wait_for("Resuming after step", seen)
        assert it.wait() == 0, it.tail
    assert same(undisturbed, tmp_path / "mingpt.pt")
    repeated(it.lines)  # fails if a restart went back too far
    assert sum(bool(re.match(start, line)) for line in it.lines) == 3


@pytest.mark.parametrize("whom", ["torchrun", "one worker"])
def test_sigterm_saves_what_was_done(whom, undisturbed, text, tmp_path):
    often = options(data=text, eval_every=1)
    with Process("mingpt", *often, cwd=tmp_path, launcher=ONCE, env=SHARED | STRICT) as it:
        it.wait_for(r"Step +5 \| train")
        os.kill(it.process.pid if whom == "torchrun" else it.workers()[1], signal.SIGTERM)
        assert it.wait() != 0
    assert "trainer.py" not in it.err and "are left" not in it.err  # only torchrun shows tracebacks
    stopped = torch.load(tmp_path / "mingpt.pt")["steps_run"]
    assert 5 <= stopped < LAST
    assert stopped == log(tmp_path)[-1]["step"]  # all that was done
    # and no validation meanwhile, which may take longer than the scheduler waits
    assert stopped - 1 in curve(tmp_path) and stopped not in curve(tmp_path)
    if whom == "one worker":
        assert "exitcode  : 143" in it.err
    process = run("mingpt", *options(data=text), cwd=tmp_path, launcher=ONCE)
    assert (process.status, process.err) == (0, ""), process.tail
    assert f"Resuming after step {stopped}" in process.out
    assert same(undisturbed, tmp_path / "mingpt.pt")
    assert [line["step"] for line in log(tmp_path) if "train_loss" in line] == [*range(1, LAST + 1)]
    assert sorted(leftovers(tmp_path)) == ["data", "mingpt.jsonl", "mingpt.pt"]


def test_a_process_of_another_launcher_ends_with_the_status_asked_for(text, tmp_path):
    words = [sys.executable, "-m", "mingpt.main", "--stopped_status", 99]
    words += options(data=text, total_steps=100_000)
    env = environment(PYTHONPATH=str(ROOT), **ALONE)
    with processes.Process(words, tmp_path, env, stderr=subprocess.PIPE) as it:
        it.wait_for(r"Step +5 \| train")
        it.process.send_signal(signal.SIGTERM)
        assert (it.wait(), it.err) == (99, "")
    assert torch.load(tmp_path / "mingpt.pt")["steps_run"] >= 5

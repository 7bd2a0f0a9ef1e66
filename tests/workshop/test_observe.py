"""The probe records what happened, and changes nothing."""

import os
import shutil
import subprocess
import sys

import pytest

import utils
from ddp_doctor.observer import PROBE
from tests.faults import same
from tests.processes import ROOT
from tests.workshop.scripts import BEYOND, right
from workshop.checks import LESSONS, OF
from workshop.by_epoch import Run
from workshop.verdicts import check, judge
from workshop.scenarios import PART
from workshop.by_epoch import SAMPLES, Worker


def test_it_knows_the_size_of_the_dataset():
    assert SAMPLES == utils.NUM_SAMPLES


def test_a_rank_that_lost_its_peer_was_waiting_when_it_did():
    backward = {"kind": "backward", "t": 1}
    for message, waits in (("Connection reset by peer", backward), ("too hot", None)):
        ended = [{"kind": "raised", "t": 2, "message": message}, {"kind": "exit", "t": 3}]
        assert Worker({}, [backward, *ended]).waits == waits


def test_what_the_ranks_saw_and_sent():
    run, _ = right("multigpu")
    first, second = run.attempts[0].ranks
    assert [len(epoch) for epoch in first.epochs] == [22, 22, 22]
    assert {len(step.samples) for step in first.steps} == {48, 16}
    assert not set(first.steps[0].samples) & set(second.steps[0].samples)
    for worker in (first, second):
        assert worker.first("joined")["world_size"] == 2
        calls = [(c["what"], c["bytes"]) for c in worker.all("collective")]
        assert calls == [("DDP", 84), *[("all_reduce", 8)] * 3, ("barrier", 0)]
        assert worker.first("exit")["status"] is None
    saved = [keys_of(fact) for fact in first.all("saved")]
    assert saved == [(["weight", "bias"], 2), (["weight", "bias"], 3)]
    assert not second.all("saved")
    assert [fact["path"] for fact in first.all("renamed")] == ["multigpu.pt"] * 2


def keys_of(saved):
    numbers = {leaf["key"]: leaf["number"] for leaf in saved["content"]}
    return saved["names"], numbers["epochs_run"]


def test_where_a_restart_went_on():
    run, _ = right("multigpu_torchrun")
    assert [attempt.number for attempt in run.attempts] == [0, 1]
    assert run.first("fault")["pid"] == run.attempts[0].ranks[1].process["pid"]
    for worker in run.attempts[1].ranks:
        assert worker.started_after == 2
        assert worker.place(0) == "step 1 of epoch 3"


def test_it_changes_nothing(tmp_path):
    """With and without the probe, the checkpoints are equal to the last bit."""
    for name in ("with", "without"):
        folder = tmp_path / name
        folder.mkdir()
        for script in ("multigpu.py", "utils.py", "guard.py"):
            shutil.copy(ROOT / script, folder)
        env = {**os.environ, "NPROC": "2", "OMP_NUM_THREADS": "1"}
        if name == "with":
            facts_folder = tmp_path / "facts"
            facts_folder.mkdir()
            env |= PART | {"PYTHONPATH": str(PROBE)} | _paths(facts_folder, folder)
        ran = subprocess.run(
            [sys.executable, "multigpu.py", "3", "2"], cwd=folder, env=env, timeout=120,
            capture_output=True, text=True,
        )  # fmt: skip
        assert ran.returncode == 0 and not ran.stderr, ran.stderr
    assert same(tmp_path / "with" / "multigpu.pt", tmp_path / "without" / "multigpu.pt")
    assert len(list((tmp_path / "facts").glob("*.jsonl"))) >= 3


def _paths(facts, home):
    return {"DOCTOR_FACTS": str(facts), "DOCTOR_HOME": str(home)}


def test_a_sitecustomize_that_was_there_before_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    env = {**os.environ, "PYTHONPATH": f"{PROBE}:{tmp_path}"} | _paths(tmp_path, tmp_path)
    code = "import sys; print(sys.modules['sitecustomize'].__file__, sys.path)"
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout.startswith(f"theirs\n{tmp_path}/sitecustomize.py")
    assert str(PROBE) not in ran.stdout and not ran.stderr


@pytest.mark.parametrize("lesson", [
    *LESSONS, *(pytest.param(lesson, marks=pytest.mark.soak) for lesson in BEYOND)
])  # fmt: skip
def test_odd_facts_are_no_error(lesson):
    """A check says that it cannot tell if a kind of fact is missing, or if the run breaks off."""
    facts = right(lesson)[0].facts
    kinds = {fact["kind"] for fact in facts} - {"act"}
    odd = [[fact for fact in facts if fact["kind"] != kind] for kind in kinds]
    odd += [facts[:length] for length in range(1, len(facts), len(facts) // 40)]
    for some in odd:
        for finding in judge(Run(some), OF[lesson]):
            assert "itself has failed" not in finding.evidence, finding


def test_a_check_that_fails_itself_says_so():
    def broken(run):
        """It holds."""
        return 1 / 0

    (finding,) = judge(Run([]), [check("index")(broken)])
    assert finding.ok is None and "ZeroDivisionError" in finding.evidence

"""The profiler records one epoch of each rank, the flight recorder a mismatch."""

import json
import sys
from collections import Counter

import pytest

from tests.beyond.checkpoints import last_save
from tests.faults import same
from tests.processes import ROOT, environment
from tools import processes

STEPS = 2048 // 2 // 32  # of an epoch of one rank


def test_recording_does_not_change_the_training(trained):
    recorded = trained("look_inside")
    assert recorded.status == 0  # Kineto prints to stderr
    assert same(recorded.saves[-1], last_save(trained("multinode")))


@pytest.fixture
def traces(trained):
    """Of 50 epochs on two ranks."""
    folder = trained("look_inside").folder
    assert len(list(folder.glob("*.trace.json"))) == 2
    return [json.loads((folder / f"rank{rank}.trace.json").read_text()) for rank in (0, 1)]


def test_each_trace_names_its_rank(traces):
    assert [trace["distributedInfo"]["rank"] for trace in traces] == [0, 1]


def test_each_trace_has_the_second_epoch_only(traces):
    for trace in traces:
        names = Counter(event.get("name") for event in trace["traceEvents"])
        assert [name for name in names if "ProfilerStep" in str(name)] == ["ProfilerStep#1"]
        assert names["Optimizer.step#SGD.step"] == STEPS


def test_each_trace_has_one_all_reduce_per_step_and_that_of_the_loss(traces):
    for trace in traces:
        shapes = Counter(str(event["args"]["Input Dims"]) for event in _all_reduces(trace))
        assert shapes == {"[[21]]": STEPS, "[[2]]": 1}


def test_no_rank_leaves_an_all_reduce_that_another_has_not_begun(traces):
    """So the clocks agree, and the starts show who waits."""
    tolerance = 200  # microseconds, since the profiler estimates its clock
    for both in zip(*map(_all_reduces, traces), strict=True):
        begun, ended = max(one["ts"] for one in both), min(one["ts"] + one["dur"] for one in both)
        assert begun < ended + tolerance


def _all_reduces(trace):
    found = [event for event in trace["traceEvents"] if event.get("name") == "gloo:all_reduce"]
    return sorted(found, key=lambda event: event["ts"])


def test_the_flight_recorders_name_a_mismatch_by_rank_number_and_line(tmp_path):
    labs = ROOT / "docs" / "labs"
    lines = (labs / "mismatch.py").read_text().splitlines()
    wrong, after = (
        next(number for number, line in enumerate(lines, 1) if text in line)
        for text in ("all_reduce(torch.zeros(2))", "broadcast")
    )
    _run(["torchrun", "--standalone", "--nproc_per_node=2", labs / "mismatch.py"], tmp_path)
    files = [tmp_path / f"flight_{rank}" for rank in (0, 1)]
    said = _run([sys.executable, labs / "flights.py", *files], tmp_path)
    assert said == [
        *(f"#{number} | all ranks | gloo:all_reduce [[21]]" for number in (1, 2, 3)),
        f"#4 | rank 0 | gloo:all_reduce [[2]], mismatch.py:{wrong}",
        f"#4 | rank 1 | gloo:broadcast [[20]], mismatch.py:{after}",
    ]
    said = _run([sys.executable, labs / "flights.py", files[0], files[0]], tmp_path)
    assert said[-1] == "no difference"


def _run(words, folder):
    env = environment(OMP_NUM_THREADS="1")
    with processes.Process([*map(str, words)], folder, env) as process:
        assert process.wait() == 0, process.out
    return process.out.splitlines()

"""The profiler records one epoch of each rank, on clocks that agree."""

import json
from collections import Counter

STEPS = 2048 // 2 // 32  # of an epoch of one rank


def test_each_trace_has_its_rank_and_the_second_epoch_and_shows_who_waits(trained):
    ran = trained("look_inside", 3, 3)
    assert ran.status == 0  # Kineto prints to stderr
    assert len(list(ran.folder.glob("*.trace.json"))) == 2
    traces = [json.loads((ran.folder / f"rank{rank}.trace.json").read_text()) for rank in (0, 1)]
    for rank, trace in enumerate(traces):
        assert trace["distributedInfo"]["rank"] == rank
        names = Counter(event.get("name") for event in trace["traceEvents"])
        assert [name for name in names if "ProfilerStep" in str(name)] == ["ProfilerStep#1"]
        assert names["Optimizer.step#SGD.step"] == STEPS
        shapes = Counter(str(event["args"]["Input Dims"]) for event in all_reduces(trace))
        assert shapes == {"[[21]]": STEPS, "[[2]]": 1}
    # No rank leaves an all-reduce before the other begins it, up to the profiler's estimate.
    for both in zip(*map(all_reduces, traces), strict=True):
        begun, ended = max(one["ts"] for one in both), min(one["ts"] + one["dur"] for one in both)
        assert begun < ended + 200  # microseconds


def all_reduces(trace):
    found = [event for event in trace["traceEvents"] if event.get("name") == "gloo:all_reduce"]
    return sorted(found, key=lambda event: event["ts"])

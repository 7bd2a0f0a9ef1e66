"""The theory page's scripts check themselves. These tests break them, and the checks must fail.

`make docs` runs the correct scripts.
"""

import json
import re
import subprocess
import sys

import pytest

from tests.processes import LIMIT, ROOT, environment

pytestmark = pytest.mark.soak  # `make docs` runs the scripts as they are

SABOTAGE = [
    ("average_by_hand", "dist.all_reduce(gradient)", "pass", "Step 1: weights differ by 0.0"),
    ("average_by_hand", "dist.broadcast(tensor, src=0)", "pass", "Step 0: weights differ by 0."),
    ("average_in_buckets", "in self.under_way:\n", "in self.under_way[1:]:\n", "Step 1: weights"),
    ("ring_all_reduce", "left, right = ", "right, left = ", "400,000 floats: 0 ranks agree"),
]


def run(script, *args, **variables):
    return subprocess.run(
        [sys.executable, script, *args], env=environment(**variables), capture_output=True,
        text=True, timeout=LIMIT,
    )  # fmt: skip


@pytest.mark.parametrize(("script", "right", "wrong", "finding"), SABOTAGE)
def test_a_sabotaged_script_fails(script, right, wrong, finding, tmp_path):
    text = (ROOT / "docs" / "theory" / f"{script}.py").read_text()
    assert text.count(right) == 1
    (tmp_path / f"{script}.py").write_text(text.replace(right, wrong))
    ran = run(tmp_path / f"{script}.py")
    assert ran.returncode == 1, ran.stderr
    assert re.fullmatch(rf"FAILED: {re.escape(finding)}.*\n", ran.stderr), ran.stderr


def test_all_reduces_begin_during_backward_but_those_by_hand(tmp_path):
    file = tmp_path / "events.jsonl"
    ran = run(ROOT / "docs" / "theory" / "timeline.py", "--json", file)
    assert (ran.returncode, ran.stderr) == (0, "")
    events = [json.loads(line) for line in file.read_text().splitlines()]
    counts = {"average_by_hand": 16, "average_with_hooks": 16, "average_in_buckets": 4, "DDP": 4}
    for name, count in counts.items():
        for rank in (0, 1):
            here = [event for event in events if (event["variant"], event["rank"]) == (name, rank)]
            ready = next(event["end"] for event in here if event["kind"] == "backward")
            early = [e["start"] < ready for e in here if e["kind"] == "all_reduce"]
            assert len(early) == count
            assert not any(early) if name == "average_by_hand" else sum(early) >= count - 1

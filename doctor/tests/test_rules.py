"""Each rule names the defect that a test puts into a correct script, with its line."""

import pytest

from ddp_doctor.recorded_run import Run
from ddp_doctor.rules.endings import hung
from defects.cases import CASES, CORRECT, RESTARTS, Case
from diagnosing import python

# DDP imports torch._dynamo, which takes a second: once before the script forks, not in each rank.
# The collector takes a sixth of that.
QUICK = "import gc\n\ngc.disable()\nimport torch\nimport torch._dynamo\n"
TRAINER = CORRECT.replace("import torch\n", QUICK, 1)


@pytest.fixture(scope="module")
def correct(tmp_path_factory):
    return python(tmp_path_factory.mktemp("correct"), TRAINER)


def test_a_correct_script_has_no_findings(correct):
    assert correct.ran.status == 0, correct.ran.tail
    assert correct.report["findings"] == []


def test_a_correct_script_resumes(tmp_path):
    seen = python(tmp_path, TRAINER, "--restart")
    assert seen.ran.status == 0, seen.ran.tail
    assert seen.report["findings"] == seen.report["not examined"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]  # it ran in copies


FORWARD = Case(  # no call of a module: only those inside it are called
    "diverged", "_, loss = model(tokens", "_, loss = model.module.forward(tokens", "forward("
)  # fmt: skip
ALL = [*CASES, *RESTARTS, pytest.param(FORWARD, marks=pytest.mark.soak)]


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.rule)
def test_a_defect_is_named(tmp_path, case):
    assert CORRECT.count(case.old) == 1
    text = TRAINER.replace(case.old, case.new)
    seen = python(tmp_path, text, *(["--restart"] if case in RESTARTS else []))
    assert case.rule in seen.found, seen.ran.tail
    lines = text.splitlines()
    where = seen.found[case.rule][0]["where"]
    named = lines[int(where.rpartition(":")[2]) - 1] if where else None
    assert (named is None) if case.at is None else (case.at in (named or "")), (where, named)
    assert {*seen.severe} <= {case.rule, *case.also}, seen.ran.tail


@pytest.mark.parametrize(
    ("waited", "backend", "named"),
    [(240, "nccl", True), (1, "nccl", False), (240, "gloo", False)],  # gloo waits without work
)
def test_ranks_that_wait_busily_are_named_at_the_limit(waited, backend, named):
    """As with NCCL, whose waiting ranks use a whole processor. There is no GPU, so by facts."""
    facts = [{"kind": "late", "t": 300, "pid": 0, "limit": "300 s", "alive": [1, 2]}]
    for rank in (0, 1):
        own = {"pid": rank + 1, "node": None, "attempt": 0, "torchrun": True, "parent": 9}
        facts += [
            own | {"kind": "process", "t": 0, "argv": ["-u", "train.py"], "rank": rank},
            own | {"kind": "joined", "t": 1, "rank": rank, "world_size": 2, "backend": backend},
            own | {"kind": "collective", "t": 300 - waited, "what": "all_reduce", "bytes": 4,
                   "part": False, "where": f"train.py:{rank + 10}"},
        ]  # fmt: skip
    found = [*hung(Run(facts))]
    assert bool(found) == named
    if named:
        assert "rank 0 in all_reduce (train.py:10); rank 1 in all_reduce (train.py:11)" in found[0]

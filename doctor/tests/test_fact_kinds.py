"""The probe writes the facts that the table lists, and the rules read no others."""

import ast

import pytest

import recordings
from ddp_doctor.probe.fact_kinds import KINDS
from ddp_doctor.recorded_run import Run
from ddp_doctor.rules.endings import hung
from examples import EXAMPLES

# Left out of recordings, or seen in a live run only (test_command.py), or where a machine is slow.
RARE = {"bound", "removed", "stack", "unobserved", "late", "leftover", "output"}


def test_recorded_facts_are_those_of_the_table():
    seen = {}
    for example in EXAMPLES:
        one = recordings.read(example)
        for run in filter(None, (one.run, one.killed, one.run.reference)):
            for fact in run.facts:
                seen.setdefault(fact["kind"], set()).update(fact)
                kind, fields = KINDS[fact["kind"]], fact.keys() - {"kind", "t", "pid", "call"}
                assert kind.fields <= fields <= kind.fields | kind.maybe, (example.name, fact)
    assert seen.keys() - RARE == KINDS.keys() - RARE
    for kind, fields in seen.items():
        assert fields >= KINDS[kind].fields, kind


def test_rules_read_kinds_of_the_table():
    for path in recordings.PACKAGE.glob("rules/*.py"):
        _check_kinds(path)


def _check_kinds(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("all", "first"):
            names = {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
            assert names <= KINDS.keys(), (path.name, node.lineno)


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

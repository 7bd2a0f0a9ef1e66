"""The doctor names each defect with its line, and finds nothing in right scripts.

A verdict is a function of the facts of a run. So most are proven on facts that were recorded once.
"""

import re

import pytest

import recordings
from ddp_doctor import report
from ddp_doctor.diagnosis import diagnosed
from ddp_doctor.probe.fact_kinds import KINDS
from ddp_doctor.recorded_run import Run
from ddp_doctor.rules.endings import hung
from diagnosing import environment
from examples import EXAMPLES


def check(example, one):
    """Assert that the findings are those of the example."""
    found = {}
    for finding in one.findings:
        found.setdefault(finding.rule.name, []).append(finding)
    severe = [finding.rule.name for finding in one.findings if finding.rule.severity != "note"]
    told = [(finding.rule.name, finding.evidence, finding.where) for finding in one.findings]
    assert example.status in (None, one.run.status), told
    if example.verdict:
        assert example.case.verdict(one.findings) == example.verdict, told
    assert example.severe is None or {*severe} == {*example.severe}, told
    assert example.only is None or {*severe} <= {*example.only}, told
    assert found.keys() >= {*example.has} and not found.keys() & {*example.lacks}, told
    for rule, part in example.evidence.items():
        assert any(part in finding.evidence for finding in found[rule]), told
    for rule, part in example.at.items():
        where = found[rule][0].where
        file, _, number = (where or "").rpartition(":")
        line = example.files[file].splitlines()[int(number) - 1] if where else None
        assert (line is None) if part is None else part in (line or ""), (where, line)
    unexamined = report.unexamined(one)
    assert not [why for why in unexamined if re.match(r"_\w+: ", why)], unexamined
    assert not example.nothing or told == unexamined == [], (told, unexamined)
    assert any((example.unexamined or "") in why for why in [*unexamined, ""]), unexamined


@pytest.mark.quick
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_recorded_facts_have_the_verdict(example):
    again = f"its script or the probe has changed: {recordings.command_for(example)}"
    assert recordings.recorded_key(example) == recordings.key_of(example), again
    one = recordings.read(example)
    for run in filter(None, (one.run, one.killed, one.run.reference)):
        for fact in run.facts:
            kind, fields = KINDS[fact["kind"]], fact.keys() - {"kind", "t", "pid", "call"}
            assert kind.fields <= fields <= kind.fields | kind.maybe, fact
    one.judge()
    check(example, one)


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.name, marks=() if e.live else pytest.mark.soak) for e in EXAMPLES],
)
def test_a_run_has_the_verdict(example, tmp_path, monkeypatch, request):
    for name, text in example.files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    words = [*example.words]
    with diagnosed(words, example.plan, cpu=example.cpu, limit=example.limit) as one:
        if request.config.getoption("--record"):
            recordings.write(example, one)
        check(example, one)  # a new case of the benchmark fails until its verdict is written


def test_each_recording_has_an_example():
    paths = {recordings.path_of(example) for example in EXAMPLES}
    assert len(paths) == len(EXAMPLES)
    assert {*recordings.FACTS.iterdir()} <= paths


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

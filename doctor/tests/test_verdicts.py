"""The doctor names each defect with its line, and finds nothing in right scripts.

A verdict is a function of the facts of a run. So most are proven on facts that were recorded once.
"""

import re

import pytest

import recordings
from ddp_doctor import report
from ddp_doctor.diagnosis import diagnosed
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


# CI runs only the examples that show what a recording cannot.
LATER = [one for one in EXAMPLES if not one.live]


@pytest.mark.quick
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_recorded_facts_have_the_verdict(example):
    again = f"its script or the probe has changed: {recordings.command_for(example)}"
    assert recordings.recorded_key(example) == recordings.key_of(example), again
    one = recordings.read(example)
    one.judge()
    check(example, one)


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.name, marks=pytest.mark.soak if e in LATER else ()) for e in EXAMPLES],
)
def test_a_run_has_the_verdict(example, tmp_path, monkeypatch, request):
    for name, text in example.files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    words = [*example.words]
    with diagnosed(words, example.plan, cpu=example.cpu, limit=example.limit) as one:
        check(example, one)
        if request.config.getoption("--record"):
            recordings.write(example, one)


def test_each_recording_has_an_example():
    paths = {recordings.path_of(example) for example in EXAMPLES}
    assert len(paths) == len(EXAMPLES)
    assert {*recordings.FACTS.iterdir()} <= paths

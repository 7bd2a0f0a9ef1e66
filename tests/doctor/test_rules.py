"""Each rule names the defect that a test puts into a correct script, with its line."""

import pytest

from docs.defects import CASES, CORRECT, RESTARTS

from .doctor import python


@pytest.fixture(scope="module")
def correct(tmp_path_factory):
    return python(tmp_path_factory.mktemp("correct"), CORRECT)


def test_a_correct_script_has_no_findings(correct):
    assert correct.ran.status == 0, correct.ran.tail
    assert correct.report["findings"] == []


def test_a_correct_script_resumes(tmp_path):
    seen = python(tmp_path, CORRECT, "--restart")
    assert seen.ran.status == 0, seen.ran.tail
    assert seen.report["findings"] == seen.report["not examined"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]  # it ran in copies


@pytest.mark.parametrize("case", [*CASES, *RESTARTS], ids=lambda case: case.rule)
def test_a_defect_is_named(tmp_path, case):
    assert CORRECT.count(case.old) == 1
    text = CORRECT.replace(case.old, case.new)
    seen = python(tmp_path, text, *(["--restart"] if case in RESTARTS else []))
    assert case.rule in seen.found, seen.ran.tail
    lines = text.splitlines()
    where = seen.found[case.rule][0]["where"]
    named = lines[int(where.rpartition(":")[2]) - 1] if where else None
    assert (named is None) if case.at is None else (case.at in (named or "")), (where, named)
    assert {*seen.severe} <= {case.rule, *case.also}, seen.ran.tail

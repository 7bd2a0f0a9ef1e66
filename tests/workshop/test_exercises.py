"""Every start fails with its own hint, and every solution passes every check."""

import re

import pytest

from tests.processes import LESSONS
from tests.workshop.scripts import BEYOND, mistake, right, told
from tools.series import stages
from workshop.checks import LESSONS as TAUGHT
from workshop.exercises import exercises, undone
from workshop.verdicts import passed

EVIDENCE = {  # for exercises whose check can fail for another reason too
    "multigpu/distribute-the-data": "samples 0, 1, 2 … more than once: 2,048 of 2,048",
    "multinode/the-same-half": "in epoch 4, ranks 0 and 1 saw samples",
    "multigpu/waiting-for-rank-1": (
        r"of rank 0 is \w+ .*\(multigpu.py:\d+\) in epoch 1, that of rank 1 is backward"
    ),
}
STAGES = {stage.source.text for name in TAUGHT for stage in stages.of(LESSONS[name])}
# test_paths.py runs the starts that are stages.
OTHERS = [name for name, one in exercises().items() if one.start not in STAGES]


@pytest.mark.parametrize("name", OTHERS)
def test_a_start_fails_with_its_own_hint(name):
    exercise = exercises()[name]
    found, evidence = mistake(exercise.lesson.name, exercise.start, checks=exercise.checks)
    assert found == exercise.check, evidence
    assert re.search(EVIDENCE.get(name, ""), evidence)


@pytest.mark.parametrize("lesson", TAUGHT)
def test_a_solution_passes_every_check(lesson):
    """The lesson is the solution of all its exercises, so one run is enough."""
    ours = [one for one in exercises().values() if one.lesson.name == lesson]
    assert {one.solution for one in ours} == {LESSONS[lesson].source.text}
    seen, findings = right(lesson)
    assert passed(findings), told(seen, findings)


@pytest.mark.parametrize("lesson", BEYOND)
def test_a_lesson_of_beyond_passes_its_checks(lesson):
    seen, findings = right(lesson)
    assert passed(findings), told(seen, findings)


def test_every_edit_of_the_spine_is_an_exercise_and_every_lesson_one_more():
    for lesson in TAUGHT:
        path = exercises()[lesson]
        assert [step.name for step in path.steps] == [
            f"{lesson}/{edit.name}" for edit in LESSONS[lesson].edits
        ]
    assert sum("Bug hunt" in one.title for one in exercises().values()) >= 10


def test_with_a_definition_goes_what_others_have_put_into_it():
    text = undone(LESSONS["multigpu"].edit("start-the-processes"))
    assert "LOCAL_RANK" in LESSONS["multigpu"].source.text.partition("def worker")[2]
    assert "LOCAL_RANK" not in text.partition("def main")[2] and "def worker" not in text

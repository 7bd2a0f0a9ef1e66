"""The scripts that the checks are held against, each with the verdict that it must get.

Cases are the stages of each path, the starts of all other exercises, the lessons of beyond/, and
the right and wrong answers in answers.toml.
"""

import re
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from tests.processes import LESSONS
from tools.series import stages
from workshop.by_epoch import Run
from workshop.checks import BEYOND
from workshop.checks.evidence import ending
from workshop.exercises import Exercise, exercises
from workshop.verdicts import Finding, first_failure

ANSWERS = Path(__file__).with_name("answers.toml")
EVIDENCE = {  # for starts whose check can fail for another reason too
    "multigpu/distribute-the-data": "samples 0, 1, 2 … more than once: 2,048 of 2,048",
    "multinode/the-same-half": "in epoch 4, ranks 0, 1 and 2 saw samples",
    "multigpu/waiting-for-rank-1": (
        r"of rank 0 is \w+ .*\(multigpu.py:\d+\) in epoch 1, that of rank 1 is backward"
    ),
}


@dataclass(frozen=True)
class Case:
    """A script for an exercise. `fails` names the check that is shown; None: all checks pass."""

    name: str
    exercise: Exercise
    text: str
    fails: str | None = None
    seen: str = ""  # a regular expression for the evidence
    stage: int | None = None  # on a path, how many steps it has made
    cure: str = ""  # a regular expression for the hint

    @property
    def lesson(self) -> str:
        return self.exercise.lesson.name

    def hold(self, run: Run, findings: list[Finding]):
        """Raises AssertionError if the verdict is another."""
        told = "\n".join(f"{f.ok} {f.check.name}: {f.evidence}" for f in findings if not f.ok)
        told += "".join(f"\n{fact['text']}" for fact in run.all("output"))
        reached = self.stage or 0 if run.crash else self.exercise.reached(findings)
        if self.stage is not None:
            assert reached == self.stage, told
        crash = ending(run) if run.crash else ""
        first = self.exercise.failure(findings, reached, crash)
        if self.fails is None:
            assert not first_failure(findings), told
        else:
            assert first and first.ok is False and first.check.name == self.fails, told
            assert re.search(self.seen, first.evidence), first.evidence
            assert re.search(self.cure, self.exercise.hint_for(first)), first.evidence


def changed(stage: str, diff: str) -> str:
    """The script of a stage with a diff applied whose hunks occur once."""
    text = stages.find(LESSONS, stage).source.text
    for hunk in diff.split("@@\n"):
        lines = [line or " " for line in hunk.splitlines()]
        old, new = (
            "".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +")
        )
        assert text.count(old) == 1, f"{stage}: {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def _answers():
    known = {lesson.name for lesson in LESSONS}  # a lesson of beyond/ may be deleted
    for kind, answers in tomllib.loads(ANSWERS.read_text(encoding="utf-8")).items():
        for name, of in answers.items():
            lesson, at, number = of["lesson"].partition("@")
            if lesson in known:
                text = of.get("text") or changed(of["lesson"], of["diff"])
                exercise = exercises()[of["of"]] if "of" in of else _whole(lesson)
                stage = of.get("stage", int(number) - 1) if at and exercise.steps else None
                verdict = of.get("check"), of.get("seen", ""), stage, of.get("cure", "")
                yield Case(f"{kind}: {name}", exercise, text, *verdict)


def _whole(lesson):
    """An exercise with all checks of a lesson: its path, or in beyond/ one edit."""
    one = next(one for one in exercises().values() if one.lesson.name == lesson)
    return exercises().get(lesson, replace(one, of_others=frozenset()))


def _stages():
    for lesson in [one.name for one in exercises().values() if one.steps]:
        path = exercises()[lesson]
        for stage in stages.of(LESSONS[lesson]):
            text = stage.source.text
            same = [one for one in path.steps if one.start == text]
            following = path.steps[stage.number : stage.number + 1]
            fails = following[0].check if following else None
            seen = EVIDENCE.get(same[0].name, "") if same else ""
            yield Case(stage.name, path, text, fails, seen, stage.number)


def _cases():
    yield from _stages()
    known = {case.text for case in _stages()}
    for name, one in exercises().items():
        if one.start not in known:
            yield Case(name, one, one.start, one.check, EVIDENCE.get(name, ""))
        if one.stage and not one.steps:
            yield Case(f"{name}, made", one, one.solution)
    for lesson in [lesson for lesson in LESSONS if lesson.name in BEYOND]:
        yield Case(lesson.name, _whole(lesson.name), lesson.source.text)
    yield from _answers()


CASES = {}
for _case in _cases():
    assert CASES.setdefault(_case.name, _case) is _case, f"two cases are called {_case.name}"

"""The scripts that the checks are held against, each with the verdict that it must get.

Cases are the stages of each path, the starts of all other exercises, the lessons of beyond/, and
the right and wrong answers in answers.toml.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.processes import LESSONS
from tools.series import stages
from workshop.by_epoch import Run
from workshop.checks import BEYOND, OF
from workshop.checks import LESSONS as SPINE
from workshop.exercises import exercises
from workshop.verdicts import Check, Finding, first_failure, passed

ANSWERS = Path(__file__).with_name("answers.toml")
EVIDENCE = {  # for starts whose check can fail for another reason too
    "multigpu/distribute-the-data": "samples 0, 1, 2 … more than once: 2,048 of 2,048",
    "multinode/the-same-half": "in epoch 4, ranks 0 and 1 saw samples",
    "multigpu/waiting-for-rank-1": (
        r"of rank 0 is \w+ .*\(multigpu.py:\d+\) in epoch 1, that of rank 1 is backward"
    ),
}


@dataclass(frozen=True)
class Case:
    """A script of a lesson. `fails` names the check that fails first; None: all checks pass."""

    name: str
    lesson: str
    text: str
    checks: tuple[Check, ...]
    fails: str | None = None
    seen: str = ""  # a regular expression for the evidence
    stage: int | None = None  # on a path, how many steps it has made

    def hold(self, run: Run, findings: list[Finding]):
        """Raises AssertionError if the verdict is another."""
        told = "\n".join(f"{f.ok} {f.check.name}: {f.evidence}" for f in findings if not f.ok)
        told += "".join(f"\n{fact['text']}" for fact in run.all("output"))
        if self.stage is not None:
            path = exercises()[self.lesson]
            assert path.reached(findings) == self.stage, told
            following = [step.check for step in path.steps[self.stage :][:1]]
            assert [f.check.name for f in [path.failure(findings)] if f] == following, told
        first = first_failure(findings)
        if self.fails is None and self.stage is None:
            assert passed(findings), told
        elif self.fails:
            assert first and first.ok is False and first.check.name == self.fails, told
            assert re.search(self.seen, first.evidence), first.evidence


def changed(lesson: str, diff: str) -> str:
    """The lesson's script with a diff applied whose hunks occur once."""
    text = LESSONS[lesson].source.text
    for hunk in diff.split("@@\n"):
        lines = [line or " " for line in hunk.splitlines()]
        old, new = (
            "".join(f"{line[1:]}\n" for line in lines if line[0] in signs) for signs in (" -", " +")
        )
        assert text.count(old) == 1, f"{lesson}: {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    return text


def _answers():
    known = {lesson.name for lesson in LESSONS}  # a lesson of beyond/ may be deleted
    for kind, answers in tomllib.loads(ANSWERS.read_text(encoding="utf-8")).items():
        for name, of in answers.items():
            if of["lesson"] in known:
                text = of.get("text") or changed(of["lesson"], of["diff"])
                checks = exercises()[of["of"]].checks if "of" in of else OF[of["lesson"]]
                verdict = of.get("check"), of.get("seen", "")
                yield Case(f"{kind}: {name}", of["lesson"], text, tuple(checks), *verdict)


def _stages():
    for lesson in SPINE:
        path = exercises()[lesson]
        for stage in stages.of(LESSONS[lesson]):
            text, whole = stage.source.text, stage.number == len(path.steps)
            same = [one for one in path.steps if one.start == text]
            fails = same[0].check if same else None
            seen = EVIDENCE.get(same[0].name, "") if same else ""
            number = None if whole else stage.number
            yield Case(stage.name, lesson, text, tuple(path.checks), fails, seen, number)


def _cases():
    yield from _stages()
    known = {case.text for case in _stages()}
    for name, one in exercises().items():
        if one.start not in known:
            evidence = EVIDENCE.get(name, "")
            checks = tuple(one.checks)
            yield Case(name, one.lesson.name, one.start, checks, one.check, evidence)
    for lesson in [lesson for lesson in LESSONS if lesson.name in BEYOND]:
        yield Case(lesson.name, lesson.name, lesson.source.text, tuple(OF[lesson.name]))
    yield from _answers()


CASES = {case.name: case for case in _cases()}
assert len(CASES) == len([*_cases()])

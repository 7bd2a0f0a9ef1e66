"""Checks: pure functions over the facts of a run. What a program did counts, not how it reads."""

from collections.abc import Callable
from dataclasses import dataclass

from .facts import Run

Verdict = tuple[bool, str] | None  # true or false with its evidence; None: nothing to judge it by


@dataclass(frozen=True)
class Check:
    """A sentence about a run. `page` and `edit` (or section) are where it is explained."""

    name: str
    sentence: str
    hint: str
    page: str
    edit: str | None
    judge: Callable[[Run], Verdict]


@dataclass(frozen=True)
class Finding:
    """What a check says of a run. `ok` is None where the run gave nothing to judge it by."""

    check: Check
    ok: bool | None
    evidence: str


def check(page: str, edit: str | None = None):
    """Makes a check of a function whose docstring is its sentence, and below that its hint."""

    def make(function) -> Check:
        sentence, _, hint = function.__doc__.strip().partition("\n\n")
        sentence, hint = " ".join(sentence.split()), " ".join(hint.split())
        name = function.__name__.replace("_", "-")
        return Check(name, sentence, hint, page, edit, function)

    return make


def judge(run: Run, checks: list[Check]) -> list[Finding]:
    """What each check says, in their order. Never raises: what cannot be judged says so."""
    findings = []
    for one in checks:
        try:
            ok, evidence = one.judge(run) or (None, "the run did not get far enough to tell")
        except Exception as error:  # facts such as no run has had yet
            ok, evidence = None, f"this check has failed itself, please report it: {error!r}"
        findings.append(Finding(one, ok, evidence))
    return findings


def first_failure(findings: list[Finding]) -> Finding | None:
    """The first that is false; if none is, the first that could not be judged; None: all true."""
    false = (finding for finding in findings if finding.ok is False)
    unknown = (finding for finding in findings if finding.ok is None)
    return next(false, next(unknown, None))


def passed(findings: list[Finding]) -> bool:
    return all(finding.ok for finding in findings)

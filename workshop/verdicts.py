"""Checks: pure functions over the facts of a run. They judge what a script did, not its text."""

from collections.abc import Callable
from dataclasses import dataclass

from .by_epoch import Run

Verdict = tuple[bool, str] | None  # true or false, with evidence; None: the run did not get so far


@dataclass(frozen=True)
class Check:
    """A sentence about a run. `page` and its section `edit` explain it."""

    name: str
    sentence: str
    hint: str
    page: str
    edit: str | None
    lessons: tuple[str, ...]  # whose scripts it judges; empty: all
    judge: Callable[[Run], Verdict]


@dataclass(frozen=True)
class Finding:
    """A check's verdict on a run. `ok` is None if the run did not get far enough to tell."""

    check: Check
    ok: bool | None
    evidence: str


def check(page: str, edit: str | None = None, *lessons: str):
    """Turn a function into a check. Its docstring is the sentence and, below that, the hint."""

    def make(function) -> Check:
        sentence, _, hint = function.__doc__.strip().partition("\n\n")
        sentence, hint = " ".join(sentence.split()), " ".join(hint.split())
        name = function.__name__.replace("_", "-")
        return Check(name, sentence, hint, page, edit, lessons, function)

    return make


def judge(run: Run, checks: list[Check]) -> list[Finding]:
    """Each check's finding, in order. Never raises: a check that cannot judge says so."""
    findings = []
    for one in checks:
        try:
            ok, evidence = one.judge(run) or (None, "the run did not get far enough to tell")
        except Exception as error:  # facts that no run had before
            ok, evidence = None, f"the check itself has failed, please report it: {error!r}"
        findings.append(Finding(one, ok, evidence))
    return findings


def first_failure(findings: list[Finding]) -> Finding | None:
    """The first false finding, else the first without a verdict; None if every check passes."""
    false, unknown = ([one for one in findings if one.ok is ok] for ok in (False, None))
    return next(iter(false + unknown), None)

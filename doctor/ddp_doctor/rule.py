"""Rules: pure functions over the facts of a run, each about one defect."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from .recorded_run import Run

SEVERITIES = ("error", "warning", "note")
RULES = []  # all, in the order in which their files define them


@dataclass(frozen=True)
class Rule:
    """`sentence` says what is wrong; `advice` says why it matters, and what to do."""

    name: str
    severity: str
    sentence: str
    advice: str
    find: Callable[[Run], Iterator[tuple]]  # evidence, a line or None, perhaps advice


@dataclass(frozen=True)
class Finding:
    """A rule that applies: the evidence, with numbers, and a line of the user's if one is known."""

    rule: Rule
    evidence: str
    where: str | None
    advice: str  # the rule's, or one that fits this evidence


def rule(severity: str):
    """Turn a function that yields evidence and places into a rule.

    Its docstring is the sentence and, below that, the advice. Its name is the rule's. What it
    yields may end with advice that fits the evidence better. Only the first that it yields is
    reported, because others mostly have the same cause.
    """

    def make(function):
        sentence, _, advice = function.__doc__.strip().partition("\n\n")
        sentence, advice = (" ".join(text.split()) for text in (sentence, advice))
        name = function.__name__.replace("_", "-")
        RULES.append(Rule(name, severity, sentence, advice, function))
        return function

    return make


def examine(run: Run, ignored: frozenset[str] = frozenset(), file=None) -> list[Finding]:
    """All findings. A rule that fails itself is a note, never an exception.

    With `file`, a module of rules, only the rules of that module run.
    """
    findings = []
    for one in RULES:
        if one.name in ignored or (file and one.find.__module__ != file.__name__):
            continue
        try:
            for evidence, where, *fitting in islice(one.find(run), 1):
                advice = next(filter(None, fitting), one.advice)
                findings.append(Finding(one, evidence, where, advice))
        except Exception as error:  # facts that no run had before
            note = Rule(one.name, "note", "This rule itself has failed.", "Report it.", one.find)
            findings.append(Finding(note, repr(error), None, note.advice))
    return findings

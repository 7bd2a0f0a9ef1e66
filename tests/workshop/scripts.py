"""Run scripts as `python -m workshop check` does."""

import tempfile
from functools import cache
from pathlib import Path

from tests.processes import LESSONS, ROOT, alive
from workshop import scenarios
from workshop.checks import OF
from workshop.facts import Run
from workshop.judge import Finding, first_failure, judge, passed
from workshop.observe import LIMIT, observe


def run(lesson: str, text: str, limit: float = LIMIT) -> Run:
    """Run `text` as the script of a lesson."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / LESSONS[lesson].file
        script.write_text(text)
        files = [script, ROOT / "utils.py", ROOT / "guard.py"]
        seen = observe(files, scenarios.acts(lesson, script.name), limit)
    left = [fact for p in seen.processes if alive((fact := p.process)["pid"])]
    assert not left, left
    return seen


@cache
def right(lesson: str) -> Run:
    """The run of the unchanged lesson."""
    return run(lesson, LESSONS[lesson].source.text)


def changed(lesson: str, *changes: tuple[str, str]) -> str:
    """The lesson's text with each `(old, new)` replaced; `old` must occur once."""
    text = LESSONS[lesson].source.text
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def told(run: Run, findings: list[Finding]) -> str:
    """All findings that did not pass, as the message of a failing test."""
    lines = [f"{f.ok} {f.check.name}: {f.evidence}" for f in findings if f.ok is not True]
    return "\n".join([*lines, *(fact["text"] for fact in run.all("output"))])


def assert_right(lesson: str, text: str):
    seen = run(lesson, text)
    findings = judge(seen, OF[lesson])
    assert passed(findings), told(seen, findings)


def mistake(lesson: str, text: str, limit: float = LIMIT) -> tuple[str, str]:
    """The name of the check that fails first, and its evidence."""
    seen = run(lesson, text, limit)
    findings = judge(seen, OF[lesson])
    finding = first_failure(findings)
    assert finding and finding.ok is False, told(seen, findings)
    return finding.check.name, finding.evidence

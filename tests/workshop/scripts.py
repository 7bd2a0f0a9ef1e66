"""Run scripts as `python -m workshop check` does."""

import tempfile
from functools import cache
from pathlib import Path

from tests.processes import LESSONS, ROOT, alive
from workshop.checks import BEYOND as CHECKED
from workshop.checks import EXTRA, OF
from workshop.by_epoch import Run
from workshop.verdicts import Finding, first_failure, passed
from workshop.scenarios import LIMIT
from workshop.scenarios import examine

BEYOND = [lesson.name for lesson in LESSONS if lesson.name in CHECKED]  # each may be deleted


def examined(lesson: str, text: str, limit: float = LIMIT, checks=None):
    """Run `text` as the script of a lesson: what was seen and found."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / f"{lesson}.py"
        script.write_text(text)
        files = [script, ROOT / "utils.py", ROOT / "guard.py"]
        seen, findings = examine(lesson, script.name, files, checks or OF[lesson], limit)
    left = [fact for p in seen.processes if alive((fact := p.process)["pid"])]
    assert not left, left
    return seen, findings


@cache
def right(lesson: str):
    """What was seen and found of the unchanged lesson."""
    return examined(lesson, LESSONS[lesson].source.text)


def changed(lesson: str, *changes: tuple[str, str]) -> str:
    """The lesson's text with each `(old, new)` replaced; `old` must occur once."""
    text = LESSONS[lesson].source.text
    for old, new in changes:
        assert text.count(old) == 1, f"{text.count(old)} times: {old}"
        text = text.replace(old, new)
    return text


def together(table: dict, alone: set[str], most: int = 4) -> dict[str, tuple[str, list]]:
    """The same right answers `(lesson, changes)`, with up to `most` of them in each script."""
    scripts = []
    for name, (lesson, changes) in table.items():
        for names, of, made in scripts:
            apart = len(names) == most or of != lesson or alone & {name, *names}
            if not apart and _fit(lesson, [*made, *changes]):
                names.append(name)
                made.extend(changes)
                break
        else:
            scripts.append(([name], lesson, [*changes]))
    return {", ".join(names): (lesson, changes) for names, lesson, changes in scripts}


def _fit(lesson, changes):
    """Whether no change alters the text of another one."""
    text = LESSONS[lesson].source.text
    return all(text.count(old) == 1 for old, _ in changes) and len({o for o, _ in changes}) == len(
        changes
    )


def extra(name: str) -> list:
    """The checks of an exercise of multigpu that has one more."""
    return [EXTRA[name], *OF["multigpu"]]


def told(run: Run, findings: list[Finding]) -> str:
    """All findings that did not pass, as the message of a failing test."""
    lines = [f"{f.ok} {f.check.name}: {f.evidence}" for f in findings if f.ok is not True]
    return "\n".join([*lines, *(fact["text"] for fact in run.all("output"))])


def assert_right(lesson: str, text: str, checks=None):
    seen, findings = examined(lesson, text, checks=checks)
    assert passed(findings), told(seen, findings)


def mistake(lesson: str, text: str, limit: float = LIMIT, checks=None) -> tuple[str, str]:
    """The name of the check that fails first, and its evidence."""
    seen, findings = examined(lesson, text, limit, checks)
    finding = first_failure(findings)
    assert finding and finding.ok is False, told(seen, findings)
    return finding.check.name, finding.evidence

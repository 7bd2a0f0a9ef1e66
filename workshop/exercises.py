"""The exercises: starts and solutions, computed from lessons.toml and the scripts."""

import re
import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from textwrap import dedent, indent

from tools import series
from tools.errors import UserError
from tools.series import stages
from tools.series.diff import Line
from tools.series.model import Edit, Lesson
from tools.series.stages import Stage

from .checks import EXTRA, LESSONS, OF, OWN, RESUMES
from .checks.gpt import sends_once
from .verdicts import Check, Finding, first_failure

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("exercises.toml")


@dataclass(frozen=True)
class Exercise:
    """A script to change: the learner gets `start`; `solution` is one right answer.

    A path is an exercise that asks for all edits of a lesson, one after the other. Its `steps` are
    the exercises of these edits. The learner has made step k if the check of the kth holds.
    """

    name: str  # LESSON/EDIT, LESSON/HUNT, or for a path LESSON
    title: str
    lesson: Lesson
    start: str
    check: str  # the name of the check that fails first at the start
    second_hint: str
    third_hint: str
    symptom: str = ""  # of a bug hunt: before the first hint, a check shows no more
    steps: tuple["Exercise", ...] = ()
    of_others: frozenset[str] = frozenset()  # edits that the start lacks altogether
    stage: Stage | None = None  # of a package: the solution, with which a check compares
    runs: tuple[str, ...] = ()  # of it: where each run of a check is, and its options

    @property
    def file(self) -> str:
        return self.lesson.file if self.stage else Path(self.lesson.file).name

    @property
    def others(self) -> list[str]:
        """The files that the script imports."""
        package = sorted(ROOT.glob("mingpt/*.py")) if self.stage else []
        names = [str(path.relative_to(ROOT)) for path in package]
        return ["utils.py", "guard.py", *(name for name in names if name != self.file)]

    @property
    def solution(self) -> str:
        return self.stage.source.text if self.stage else self.lesson.source.text

    @property
    def checks(self) -> list[Check]:
        if self.stage:
            page = self.lesson.page or self.stage.edit.page
            about = {name: {"page": page} for name in ("resumes", "prints-the-same")}
            for one in self.steps or [self]:
                edit = one.stage.edit
                about[one.check] = {"page": edit.page, "edit": edit.name}
            return [replace(one, **about.get(one.name, {})) for one in OF[self.lesson.name]]
        own = [EXTRA[self.check]] if self.check in EXTRA else []
        is_accumulated = self.symptom and "require_backward_grad_sync" in self.start
        last = [sends_once] if is_accumulated else []
        return own + [one for one in OF[self.lesson.name] if one.edit not in self.of_others] + last

    def reached(self, findings: list[Finding], proven: int = 0) -> int:
        """How many steps of a path the script has made: judged by its run, or `proven` before."""
        true = {finding.check.name for finding in findings if finding.ok}
        false = {finding.check.edit for finding in findings if finding.ok is False}
        made = [step.check in true and _edit_of(step) not in false for step in self.steps]
        return max(proven, [*made, False].index(False))

    def failure(self, findings: list[Finding], reached: int = 0, crash: str = "") -> Finding | None:
        """What to fix first; None if every check passes. `crash` says how the script failed.

        On a path, what breaks a step made comes first, then numbers that differ, and what
        later ones are about may fail. A crash comes before that, unless the exercise's own check
        fails too, or ranks called different collectives and say only that.
        """
        made, later = (
            {_edit_of(step) for step in steps}
            for steps in (self.steps[:reached], self.steps[reached + 1 :])
        )
        false = [finding for finding in findings if finding.ok is False]
        due = [finding for finding in false if finding.check.edit not in later]
        # Before a model is divided, gradients differ.
        same = ("reads-its-share", "same-gradient", "prints-the-same")
        due.sort(key=lambda one: not (reached and one.check.name in same))
        due.sort(key=lambda one: one.check.edit not in made)
        own = [finding for finding in due if finding.check.name == self.check and not self.steps]
        if own and own[0].check not in RESUMES:  # what was broken before the restart comes first
            due.sort(key=lambda one: one.check in RESUMES)
        named = [f for f in due if crash in f.evidence or f.check.name == "all-take-part"]
        return next(iter((own + named if crash else []) + due), first_failure(findings))

    def hint_for(self, finding: Finding) -> str:
        """The first hint: the cure for an error that a run has ended with, if exercises.toml has
        one, else that of the check."""
        cures = [cure for sign, cure in _table()["cures"] if re.search(sign, finding.evidence)]
        return next(iter(cures), finding.check.hint)

    def fitting(self, check: Check, reached: int = 0) -> "Exercise":
        """The exercise whose hints fit a check that fails here; for one of no step, the next."""
        name = f"{self.lesson.name}/{check.edit}"
        if self.steps:
            following = self.steps[min(reached, len(self.steps) - 1)]
            return next((step for step in self.steps if step.name == name), following)
        return self if check.name == self.check else exercises().get(name, self)


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by name: one of one line, then per lesson the edits, the path, the bug hunts.

    Of beyond/, exercises.toml names the edits that are exercises."""
    table, lessons = _table(), series.load(ROOT)
    single = table["parts"] | {"mingpt": table["gpt"]}
    found = [_replacing(lessons["multigpu"], **table["first"])]
    for lesson in lessons:
        if lesson.name in LESSONS:
            hints, hunts = table["edits"][lesson.name], table["hunts"][lesson.name]
            steps = [_edit(edit, hints[edit.name]) for edit in lesson.edits]
            found += [*steps, _path(lesson, steps)]
            for name, hunt in hunts.items():
                found.append(_replacing(lesson, name, symptom=hunt["title"], **hunt))
        for name, facts in table["beyond"].get(lesson.name, {}).items():
            found.append(_edit(lesson.edit(name), **facts))
        for name, facts in single.get(lesson.name, {}).items():
            found.append(_stage(lesson.edit(name), **facts))
        if own := table["parallel"].get(lesson.name):
            pairs = zip(lesson.edits, OWN[lesson.name], strict=False)
            steps = [_stage(e, own["hints"][e.name], own["runs"], one.name) for e, one in pairs]
            found.append(_path(lesson, steps))
    return {exercise.name: exercise for exercise in found}


@cache
def _table():
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _edit(edit: Edit, hint: str, check: str | None = None) -> Exercise:
    check = check or next(one.name for one in OF[edit.lesson.name] if one.edit == edit.name)
    start, left_out = undone(edit)
    others = [one for one in edit.lesson.edits if one is not edit]
    gone = {one.name for one in others if _added(one.lines) <= _added(left_out)}
    return Exercise(
        f"{edit.lesson.name}/{edit.name}", edit.title, edit.lesson, start, check, hint,
        _fill_in(left_out), of_others=frozenset(gone),
    )  # fmt: skip


def _edit_of(step):
    return step.name.partition("/")[2]


def _added(lines):
    return {line.number for line in lines if line.sign == "+"}


def _stage(edit: Edit, hint: str, runs: list[str], check="prints-the-same") -> Exercise:
    """To make the stage of an edit of the one before."""
    stage = stages.after(edit)
    return Exercise(
        f"{edit.lesson.name}/{edit.name}", edit.title, edit.lesson, stage.before.source.text,
        check, hint, _fill_in(stage.rows), stage=stage, runs=tuple(runs),
    )  # fmt: skip


def _path(lesson: Lesson, steps: list[Exercise]) -> Exercise:
    pairs = zip(steps, stages.of(lesson)[1:], strict=True)
    steps = tuple(replace(step, third_hint=_fill_in(stage.rows)) for step, stage in pairs)
    title = f"From {lesson.parent.file} to {lesson.file}, stage by stage: {lesson.title}"
    return replace(
        steps[0], name=lesson.name, title=title, start=lesson.parent.source.text, steps=steps,
        of_others=frozenset(), stage=steps[-1].stage,
    )  # fmt: skip


def _replacing(lesson, name, title, check, scope, old, new, hint, third="", symptom="") -> Exercise:
    """The lesson's script, with `old` replaced by `new` in one definition."""
    found = f"The mistake is here, in `{scope}`:\n{indent(dedent(new).rstrip(), '  ')}"
    missing = f"Something is missing in `{scope}`."
    return Exercise(
        f"{lesson.name}/{name}", f"{'Bug hunt: ' if symptom else ''}{title}", lesson,
        _replaced(lesson, scope, old, new), check, hint, third or (found if new else missing),
        symptom,
    )  # fmt: skip


def undone(edit: Edit) -> tuple[str, list[Line]]:
    """The lesson's script without an edit and the definitions that it introduces; then the lines
    that this lacks, and those that it has instead.
    """
    heads = [row for row in edit.rows if re.match(r"\s*(def|class) ", row.text)]
    new, old = ({row.scope for row in heads if row.sign == sign} for sign in "+-")
    rows = [replace(row, sign="+") if row.scope in new - old else row for row in edit.rows]
    kept = [row.text for row in rows if row.sign != "+"]
    return "\n".join(kept) + "\n", [row for row in rows if row.changed]


def _replaced(lesson, scope, old, new):
    source = lesson.source
    inside = [i for i, name in enumerate(source.scopes) if name == scope]
    text = "".join(f"{source.lines[i]}\n" for i in inside)
    if text.count(old) != 1:
        raise UserError(
            f"{lesson.file} has changed: {TABLE.name} needs {old!r} once in {scope}. "
            f"Restore the script: git checkout {lesson.file}"
        )
    above, below = source.lines[: inside[0]], source.lines[inside[-1] + 1 :]
    return "\n".join([*above, text.replace(old, new) + "\n".join(below)]) + "\n"


def _fill_in(lines: list[Line]) -> str:
    """The added and removed lines; arguments and assigned values are left out."""
    shown, scope = ["Fill in what is left out here:", ""], None
    for line in [line for line in lines if line.changed]:
        if line.scope == "docstring" or line.text.strip().startswith("#") or not line.text.strip():
            continue
        if line.scope != scope:
            scope = line.scope
            shown.append(f"{scope}:")
        text = line.text if line.sign == "-" else _elided(line.text)
        shown.append(f"  {line.sign} {text}".rstrip())
    return "\n".join(shown)


def _elided(text: str) -> str:
    code = text.partition("  #")[0]
    if re.match(r"\s*(import|from|def|@|try|finally|else|return$)", code):
        return code
    code = re.sub(r"(?<=\w)\((?!\)).*", "(…", code)
    return re.sub(r"(?<= = )[^…]*$", "…", code)

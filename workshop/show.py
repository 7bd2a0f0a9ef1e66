"""What the learner reads: plain text, in colour if the terminal can."""

import os
import re
import sys
import textwrap
import time
from collections.abc import Callable

from tools import series
from tools.series import stages

from .by_epoch import Run
from .checks.evidence import ending
from .exercises import ROOT, Exercise
from .verdicts import Finding

# Frames of the probe (the line that names the file, and its code) and of C++.
NOT_THEIRS = re.compile(
    r'(?m:^)(\[rank\d+\]:)? *File "[^"\n]*/(ddp_doctor|workshop)/probe/.*\n'
    r'((\[rank\d+\]:)?    (?! *File ").*\n)*'
    r"|(?m:^(frame #|Exception raised from).*\n)"
)


def say(text: str = "", color: str = ""):
    """Print `text`, in `color` if the terminal can."""
    codes = {"green": "32", "red": "31", "yellow": "33", "dim": "2", "bold": "1"}
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if color and terminal and not os.environ.get("NO_COLOR"):
        text = f"\x1b[{codes[color]}m{text}\x1b[0m"
    print(text, flush=True)


def wrapped(text: str, indent: str = "") -> str:
    """Wrap text at 80 columns. Indented lines are code and stay as they are."""
    blocks = []
    for block in text.split("\n"):
        if block.startswith(("  ", "- ")) or not block:
            blocks.append(indent + block if block else "")
        else:
            blocks.append(textwrap.fill(block, 80, initial_indent=indent, subsequent_indent=indent))
    return "\n".join(blocks)


def where(finding: Finding) -> str:
    """The page and section that explain a check."""
    page, name = finding.check.page, finding.check.edit
    edits = [edit for lesson in series.load(ROOT) for edit in lesson.edits if lesson.page == page]
    title = next((f", “{edit.title}”" for edit in edits if edit.name == name), "")
    return f"{page}.html{title}"


def running() -> Callable:
    """What shows on a terminal, called while a script runs, that it does."""
    begun = time.monotonic()

    def tell():
        if sys.stdout.isatty():
            seconds = f"  … your script runs, {time.monotonic() - begun:.0f} s "
            print(f"\r{seconds}\r", end="", flush=True)

    return tell


def passed(findings: list[Finding], of_the_first: int):
    """Print what the checks found, with a heading above those of a second run."""
    for number, finding in enumerate(findings):
        if number == of_the_first:
            say("  In a second run:")
        say(f"  ✓ {finding.check.sentence}", "green")
        say(wrapped(finding.evidence, "      "), "dim")


def failure(run: Run, first: Finding, hint: str):
    """Print the first failure only: others may follow from it."""
    say(f"  {'✗' if first.ok is False else '·'} {first.check.sentence}", "red")
    processes = run.asked["processes"]
    several = f", with {processes} processes" if processes > 2 else ""
    say(wrapped(f"Seen{several}: {first.evidence}.", "      "))
    caused = run.first("fault") and not run.crash  # by the check: the end says nothing
    if not caused and (told := ending(run)) and told not in first.evidence:
        say(wrapped(f"The end: {told}.", "      "))
    say(wrapped(f"Hint: {hint}", "      "))
    say(f"      Page: {where(first)}", "dim")
    if blind := run.first("unobserved"):
        say(f"  · the probe could not record everything: {blind['error']}", "dim")
    if caused:
        return
    if any(fact["status"] for fact in run.all("ended")) or run.first("hung", "late"):
        printed(run)


def symptom(run: Run, text: str):
    """Print what a victim of a mistake would see: of a bug hunt, before its first hint."""
    say(f"  ✗ {text[0].upper()}{text[1:]}.", "red")
    printed(run)


def progress(exercise: Exercise, reached: int, first: Finding | None, crashed: bool):
    """Print which stage of a path the script has reached, and which edit is next."""
    broken = first and not crashed and first.check.edit
    for number, step in enumerate(exercise.steps, 1):
        mark = "✓" if number <= reached else "→" if number == reached + 1 else " "
        mark = "✗" if number <= reached and step.name.endswith(f"/{broken}") else mark
        say(f"  {mark} {number} {step.title}", "green" if mark == "✓" else "")
    say()
    if reached == len(exercise.steps):
        return
    if crashed:
        say("Your script ended with an error. Fix that first:", "yellow")
        return
    stage, following = stages.Stage(exercise.lesson, reached).name, exercise.steps[reached]
    has = f"Your script has reached {stage}" if reached else "Your script has none of the edits yet"
    if any(step.name.endswith(f"/{broken}") for step in exercise.steps[:reached]):
        say(f"You had reached {stage}. This is broken now:", "yellow")
        return
    say(f"{has}. The next edit: {following.title}.", "bold")
    if first.check.name != following.check:
        is_part = following.name.endswith(f"/{broken}")
        say("It is not complete yet:" if is_part else "Before that, fix this:", "yellow")


def printed(run: Run):
    """Print the last lines of the script's output."""
    for output in run.all("output")[-2:]:
        if lines := NOT_THEIRS.sub("", f"{output['text']}\n").strip("\n").splitlines():
            node = f" on {output['node']}" if output.get("node") else ""
            say(f"\n  The last lines that your script printed{node}:", "dim")
            for line in lines[-12:]:
                say(f"    {line[:160]}", "dim")

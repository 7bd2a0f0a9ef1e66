"""One screen: what ran, what is wrong with it, and what could not be examined."""

import os
import shutil
import sys
import textwrap

from .diagnosis import Diagnosis
from .recorded_run import Run
from .rule import SEVERITIES
from .rules import checkpoint_files, endings, parity, sample_shares

MARKS = {"error": "✗", "warning": "!", "note": "·"}
COLORS = {"error": "31", "warning": "33", "note": "2"}
NOTES = 5  # shown without --all


def header(run: Run) -> str:
    """`2 ranks, 224 optimizer steps, 9 s, the probe took 0.4 % of it`."""
    ranks = len(run.ranks) or len(run.trained)
    steps = max((worker.number_of_steps for worker in run.trained), default=0)
    begin = run.first("act")["t"]
    end = (run.first("ended", "hung", "late") or run.facts[-1])["t"]
    parts = [
        f"{ranks} rank{'s' * (ranks != 1)}",
        f"{steps:,} optimizer step{'s' * (steps != 1)}",
        f"{end - begin:.0f} s",
    ]
    exits = [fact for worker in run.trained for fact in worker.all("exit")]
    if exits:
        parts.append(f"the probe took {max(f['spent'] / f['seconds'] for f in exits):.1%} of it")
    if any(fact["counts"].get("throttled") for fact in exits):
        parts.append("and looked at fewer steps to stay below 5 %")
    if late := run.first("late"):
        parts.append(f"ended after {late['limit']}")
    return ", ".join(parts)


def unexamined(one: Diagnosis) -> list[str]:
    """What no rule could look at, and why."""
    run = one.run
    parts = (endings, sample_shares, checkpoint_files)
    found = [text for part in parts for text in part.unexamined(run)]
    found += one.unexamined
    found += [f"{fact['part']}: {fact['error']}" for fact in run.all("unobserved")]
    return list(dict.fromkeys(found))


def write(one: Diagnosis, everything: bool, page: str):
    """Print the report to stderr, so that stdout is the command's alone."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    color = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    print(f"\n── ddp-doctor: {header(one.run)}", file=sys.stderr)
    if mapped := dict.fromkeys(fact["what"] for fact in one.run.all("mapped")):
        print(f"replaced: {', '.join(mapped)}", file=sys.stderr)
    if one.run.reference and (told := parity.result(one.run)):
        print(told, file=sys.stderr)
    hidden = 0
    notes = 0
    for finding in one.findings:
        severity = finding.rule.severity
        notes += severity == "note"
        if severity == "note" and notes > NOTES and not everything:
            hidden += 1
            continue
        place = f"  {finding.where}" if finding.where else ""
        first = f"{MARKS[severity]} {severity} {finding.rule.name}{place}"
        print(f"\033[{COLORS[severity]}m{first}\033[0m" if color else first, file=sys.stderr)
        seen = f"Seen: {finding.evidence.rstrip('.')}."
        for paragraph in (finding.rule.sentence, seen, finding.advice):
            print(textwrap.fill(paragraph, width, initial_indent="    ",
                                subsequent_indent="    "), file=sys.stderr)  # fmt: skip
        print(f"    {page}#{finding.rule.name}", file=sys.stderr)
    if hidden:
        print(f"· {hidden} more notes: --all shows them", file=sys.stderr)
    for text in unexamined(one):
        print(textwrap.fill(f"? not examined: {text}", width, subsequent_indent="    "),
              file=sys.stderr)  # fmt: skip
    counts = {s: sum(f.rule.severity == s for f in one.findings) for s in SEVERITIES}
    told = ", ".join(f"{n} {s}{'s' * (n != 1)}" for s, n in counts.items())
    print(f"── {told}", file=sys.stderr)


def as_json(one: Diagnosis) -> dict:
    """The same, for programs."""
    return {
        "header": header(one.run),
        "mapped": [*dict.fromkeys(fact["what"] for fact in one.run.all("mapped"))],
        "status": one.run.status,
        "findings": [
            {
                "rule": finding.rule.name,
                "severity": finding.rule.severity,
                "sentence": finding.rule.sentence,
                "evidence": finding.evidence,
                "where": finding.where,
                "advice": finding.advice,
            }
            for finding in one.findings
        ],
        "not examined": unexamined(one),
    }

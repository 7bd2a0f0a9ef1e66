"""One screen: what ran, what is wrong with it, and what could not be examined."""

import os
import shutil
import sys
import textwrap

from .diagnosis import Diagnosis
from .recorded_run import Run
from .rule import SEVERITIES
from .rules import checkpoint_files, endings, parity, resuming, sample_shares

MARKS = {"error": "✗", "warning": "!", "note": "·"}
COLORS = {"error": "31", "warning": "33", "note": "2"}


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
    return ": ".join(filter(None, [run.title, ", ".join(parts)]))


def unexamined(one: Diagnosis) -> list[str]:
    """What no rule could look at, and why."""
    parts = (endings, sample_shares, checkpoint_files, parity)
    found = [text for job in one.jobs for part in parts for text in part.unexamined(job)]
    found += [*one.unexamined, *(resuming.unexamined(one.killed) if one.killed else ())]
    found += [f"{fact['part']}: {fact['error']}" for fact in one.run.all("unobserved")]
    return list(dict.fromkeys(found))


def write(one: Diagnosis, everything: bool):
    """Print the report to stderr, so that stdout is the command's alone.

    A launcher may have printed a screen of tracebacks, so this one ends with all that matters: if
    it is too long, a line about each of the last findings is enough.
    """
    width, height = shutil.get_terminal_size((88, 50))
    heads = [f"── ddp-doctor: {header(job)}" for job in one.jobs]
    if mapped := dict.fromkeys(fact["what"] for fact in one.run.all("mapped")):
        heads.append(f"replaced: {', '.join(mapped)}")
    if one.run.reference and (told := parity.result(one.run)):
        heads.append(told)
    ends = [_filled(f"? not examined: {text}", width) for text in unexamined(one)]
    counts = {s: sum(f.rule.severity == s for f in one.findings) for s in SEVERITIES}
    told = ", ".join(f"{n} {s}{'s' * (n != 1)}" for s, n in counts.items())
    more = "; more of one: ddp-doctor explain RULE" if one.findings else ""
    ends.append(f"── {told}{more}")
    shown = one.findings
    blocks = [_block(each, everything or each.rule.severity != "note", width) for each in shown]
    for n in reversed(range(1, len(shown))):
        if everything or "\n".join([*heads, *blocks, *ends]).count("\n") + 2 < height:
            break
        blocks[n] = _block(shown[n], False, width)
    print("", *heads, *blocks, *ends, sep="\n", file=sys.stderr)


def _block(finding, whole, width):
    """A finding: whole, or in one line."""
    severity = finding.rule.severity
    place = f"  {finding.where}" if finding.where else ""
    first, seen = f"{MARKS[severity]} {severity} {finding.rule.name}{place}", finding.evidence
    if not whole:
        first += f": {textwrap.shorten(seen, 120, placeholder=' …')}"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        first = f"\033[{COLORS[severity]}m{first}\033[0m"
    texts = (finding.rule.sentence, f"Seen: {seen.rstrip('.')}.", finding.advice) if whole else ()
    return "\n".join([first, *(_filled(f"    {text}", width) for text in texts)])


def _filled(text, width):
    return textwrap.fill(text, min(88, width), subsequent_indent="    ")


def as_json(one: Diagnosis) -> dict:
    """The same, for programs."""
    return {
        "header": "; ".join(map(header, one.jobs)),
        "mapped": [*dict.fromkeys(fact["what"] for fact in one.run.all("mapped"))],
        "status": one.run.status,
        "findings": [
            vars(finding)
            | {name: getattr(finding.rule, name) for name in ("severity", "sentence")}
            | {"rule": finding.rule.name}
            for finding in one.findings
        ],
        "not examined": unexamined(one),
    }

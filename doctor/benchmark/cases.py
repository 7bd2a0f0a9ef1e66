"""Silent defects of distributed training, each with its fixed twin and the report it is from.

A case is data: an entry of kinds/*.toml. results/TOOL.json has what a tool said about each.
"""

import json
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
BASES = {path.stem: path.read_text() for path in HERE.glob("bases/*.py")}
BASES["torchrun"] = (
    BASES["ddp"].partition("def start(")[0].replace("import torch.multiprocessing as mp\n", "")
    + 'dist.init_process_group("gloo")\nmain()\ndist.destroy_process_group()\n'
)
BASES["resuming"] = (HERE.parent / "defects" / "correct_trainer.py").read_text()
VERDICTS = ("named", "half", "missed")


@dataclass(frozen=True)
class Case:
    """Its two scripts differ by the defect alone. `report` is "" where no public one was found."""

    name: str
    kind: str
    report: str
    right: str
    wrong: str
    names: dict[str, str] = field(default_factory=dict)  # a part of the line to name, by rule
    half: tuple[str, ...] = ()  # rules that tell a consequence, not the cause
    plan: str = "once"
    cpu: int | None = None
    limit: int = 300  # seconds

    @property
    def words(self) -> tuple[str, ...]:
        if "mp.start_processes" in self.right:
            return ("python", "train.py")
        return ("torchrun", "--standalone", "--nproc_per_node=2", "train.py")

    def verdict(self, findings) -> str:
        """Named: a right rule at the right line. Half: a right rule alone, or a consequence."""
        lines, said = self.wrong.splitlines(), {finding.rule.name for finding in findings}
        for finding in findings:
            part = self.names.get(finding.rule.name)
            number = int((finding.where or ":0").rpartition(":")[2])
            if part is not None and part in (lines[number - 1] if number else ""):
                return "named"
        return "half" if said & {*self.names, *self.half} else "missed"


def _case(kind, about):
    right = BASES[about.pop("base", "ddp")]
    for old, new in about.pop("change", []):  # in both scripts
        assert right.count(old) == 1, (about["name"], old)
        right = right.replace(old, new)
    wrong = right
    for old, new in about.pop("replace"):
        assert wrong.count(old) == 1, (about["name"], old)
        wrong = wrong.replace(old, new)
    half = tuple(about.pop("half", ()))
    return Case(kind=kind, right=right, wrong=wrong, half=half, **about)


@cache
def all_cases() -> list[Case]:
    tables = {path.stem: tomllib.loads(path.read_text()) for path in HERE.glob("kinds/*.toml")}
    found = [_case(kind, one) for kind, table in sorted(tables.items()) for one in table["case"]]
    assert len({case.name for case in found}) == len(found)
    return found


def results(tool: str = "ddp-doctor") -> dict:
    path = HERE / "results" / f"{tool}.json"
    return json.loads(path.read_text()) if path.exists() else {"cases": {}}


def write_results(tool: str, found: dict):
    """Keep those of the other cases that are still there."""
    about = results(tool)
    cases = about["cases"] | found
    ordered = {case.name: cases.get(case.name) for case in all_cases()}
    about["cases"] = {name: one for name, one in ordered.items() if one}
    (HERE / "results" / f"{tool}.json").write_text(json.dumps(about, indent=1) + "\n")


def score(cases: dict) -> list[tuple]:
    """By kind, then in all: cases, named, half named, missed, and twins with a false word."""
    known, rows = all_cases(), []
    for kind in [*dict.fromkeys(case.kind for case in known), "all"]:
        told = [cases[one.name] for one in known if kind in (one.kind, "all") and one.name in cases]
        counts = Counter(one["verdict"] for one in told)
        false = sum(bool(one["twin"]) for one in told)
        if told:
            rows.append((kind, len(told), *(counts[verdict] for verdict in VERDICTS), false))
    return rows

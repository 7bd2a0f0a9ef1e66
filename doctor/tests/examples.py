"""Examples: scripts with a defect or without, and what the doctor must find in each."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.cases import Case as Benchmarked
from benchmark.cases import all_cases, results
from defects.cases import CASES, CORRECT, RESTARTS, Case

BEGIN = (Path(__file__).parent / "examples" / "begin.txt").read_text()
TORCHRUN = ("torchrun", "--standalone", "--nproc_per_node=2", "train.py")
PYTHON = ("python", "train.py")
# DDP imports torch._dynamo, which takes a second: once before the script forks, not in each rank.
# The collector takes a sixth of that.
QUICK = "import gc\n\ngc.disable()\nimport torch\nimport torch._dynamo\n"
TRAINER = CORRECT.replace("import torch\n", QUICK, 1)


@dataclass(frozen=True)
class Example:
    """`severe`: the errors and warnings, exactly; else those in `has`, and none of `lacks`."""

    name: str
    files: dict[str, str]
    words: tuple[str, ...] = PYTHON
    plan: str = "once"
    cpu: int | None = None
    status: int | None = 0  # of the command; None: any
    severe: tuple[str, ...] | None = ()
    has: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None  # no other errors and warnings than these
    lacks: tuple[str, ...] = ()
    evidence: dict[str, str] = field(default_factory=dict)  # a part of it, by rule
    at: dict[str, str | None] = field(default_factory=dict)  # a part of the line, by rule
    unexamined: str | None = None  # a part of what could not be looked at
    limit: int = 300  # seconds
    nothing: bool = False  # no finding, no note, and all could be examined
    live: bool = False  # run it in CI, too: it shows what a recording cannot
    case: Benchmarked | None = None  # of the benchmark
    verdict: str | None = None  # on it, as results/ddp-doctor.json has it


def _of_case(case: Case, number: int) -> Example:
    assert CORRECT.count(case.old) == 1, case
    return Example(
        name=f"{case.rule} {number}", files={"train.py": TRAINER.replace(case.old, case.new)},
        plan="restart" if case in RESTARTS else "once", status=None, severe=None, has=(case.rule,),
        only=(case.rule, *case.also), at={case.rule: case.at},
    )  # fmt: skip


def _of_benchmark(case: Benchmarked, said: dict) -> list[Example]:
    """The defect, with today's verdict, and its fixed twin, with today's false words."""
    own = {"words": case.words, "plan": case.plan, "cpu": case.cpu, "limit": case.limit,
           "case": case}  # fmt: skip
    return [
        Example(f"benchmark, {case.name}", {"train.py": case.wrong}, status=None, severe=None,
                verdict=said.get("verdict", "unknown"), **own),
        Example(f"benchmark, {case.name}, fixed", {"train.py": case.right},
                severe=tuple(said.get("twin", ())), **own),
    ]  # fmt: skip


def _of_table(about: dict, known: dict[str, dict]) -> Example:
    """An entry of a .toml file. `like` another one, it has its fields, with texts replaced."""
    about = {"base": "begin", **known.get(about.get("like"), {}), **about}
    text = about.get("text") or BASES[about["base"]] + about.get("script", "")
    for old, new in about.get("replace", []):
        assert old in text, (about["name"], old)
        text = text.replace(old, new)
    about["text"] = text = text + about.get("append", "")
    known[about["name"]] = {key: about[key] for key in about.keys() - {"replace", "like", "append"}}
    own = {name: about[name] for name in OWN & about.keys()}
    for name in {"severe", "has", "lacks"} & own.keys():
        own[name] = tuple(own[name])
    if about.get("any_status"):
        own["status"] = None
    if "has" in own:
        own.setdefault("severe", None)
    launch = about.get("launch", "torchrun" if about["base"] == "ddp" else "python")
    return Example(about["name"], {"train.py": text, **about.get("files", {})}, LAUNCHES[launch],
                   **own)  # fmt: skip


BASES = {
    "begin": BEGIN,
    "ddp": f"{BEGIN}from torch.nn.parallel import DistributedDataParallel as DDP\n",
    "nothing": "",
    "forking trainer": CORRECT,
    "trainer": CORRECT.partition('if __name__ == "__main__"')[0]
    + 'worker(int(os.environ["RANK"]), "env://", int(os.environ["WORLD_SIZE"]))\n',
}
LAUNCHES = {"python": PYTHON, "torchrun": TORCHRUN, "launch.py": ("python", "launch.py")}
OWN = {"plan", "cpu", "status", "severe", "has", "lacks", "evidence", "at", "unexamined", "limit",
       "live", "nothing"}  # fmt: skip


def _all_examples() -> list[Example]:
    found = [Example("correct", {"train.py": TRAINER}, nothing=True, live=True)]
    found.append(Example("correct, restarted", {"train.py": TRAINER}, plan="restart", nothing=True,
                         live=True))  # fmt: skip
    benchmark = {case.wrong for case in all_cases()}  # has some of these defects, too
    found += [
        _of_case(case, number)
        for number, case in enumerate([*CASES, *RESTARTS])
        if CORRECT.replace(case.old, case.new) not in benchmark
    ]
    said = results()["cases"]
    for case in all_cases():
        found += _of_benchmark(case, said.get(case.name, {}))
    for path in sorted(Path(__file__).parent.glob("examples/*.toml")):
        known = {}
        found += [_of_table(one, known) for one in tomllib.loads(path.read_text())["example"]]
    assert len({one.name for one in found}) == len(found)
    return found


EXAMPLES = _all_examples()


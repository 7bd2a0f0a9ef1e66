"""The facts of each case's runs, recorded once, since a run takes seconds and a verdict none.

    python -m tests.workshop.recorded --stale     record again what is out of date
    python -m tests.workshop.recorded NAME...     record these cases
    python -m tests.workshop.recorded --all

A lesson's cases share a file, since much of what they see is the same. A recording has a key: the
case's script, what a check runs beside it, and the probes, all without comments and docstrings. It
keeps what the checks read, and no more: times are numbered, and of each process only the first
steps have the numbers of their gradients. Both the live run and what is kept must get the verdict
of the case.
"""

import ast
import hashlib
import json
import lzma
import math
import os
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest

from tests.processes import ROOT, alive
from tests.workshop.cases import CASES, Case
from tools.pages.keys import code
from workshop.acts import observe
from workshop.by_epoch import Run
from workshop.scenarios import examine

FOLDER = Path(__file__).with_name("facts")
COMMAND = "python -m tests.workshop.recorded"
FILES = ("utils.py", "guard.py")
PROBES = ("workshop/probe", "doctor/ddp_doctor/probe")
UNREAD = {
    "before",
    "causality",
    "content",
    "epoch",
    "evaluation",
    "first_loss",
    "labels",
    "loading",
    "losses",
}
GRADIENTS = 14  # steps of each process; local_sgd needs eleven
_solutions = {}  # the runs of those that this process has run
CASE = '{"case":'  # begins a line; the key follows the name, so that neither needs the runs parsed


def live(case: Case):
    """Run a case as a check does: its runs, the one that was judged, and the findings."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in (case.exercise.file, *case.exercise.others)]
        for file in files:
            file.parent.mkdir(exist_ok=True)
            source = ROOT / file.relative_to(folder)
            text = case.text if file == files[0] else source.read_text(encoding="utf-8")
            file.write_text(text, encoding="utf-8")

        def play(files, acts, **options):
            number = len(runs)
            runs.append(None)  # its place, before another one begins
            beside = "tell" in options
            return keep(number, (_solution if beside else observe)(files, acts))

        def keep(number, observed):
            for runs[number] in observed:
                yield runs[number]

        seen, findings = examine(case.exercise, files, play)
    left = [process.process for process in seen.processes if alive(process.process["pid"])]
    assert not left, left
    return runs, seen, findings


def _solution(files, acts):
    """What the lesson's script does, which is the same beside all answers to an exercise."""
    known = files[0].read_text(encoding="utf-8"), repr(acts)
    if len(_solutions.get(known, [])) < len(acts):  # an act that fails is the last
        _solutions[known] = [*observe(files, acts)]
    return iter(_solutions[known])


def replay(case: Case, runs: list[list[dict]]):
    """Judge recorded runs as a check judges live ones: which run was judged, and the findings."""
    following = iter(runs)
    file = Path(case.exercise.file)
    return examine(case.exercise, [file], lambda files, acts, **_: _by_act(next(following)))


def _by_act(facts):
    """A recorded run, as it was after each act."""
    begins = [fact["t"] for fact in facts if fact["kind"] == "act"]
    for end in (*begins[1:], math.inf):
        yield Run([fact for fact in facts if fact["t"] < end])


def read(case: Case) -> list[list[dict]]:
    """The recorded facts of each of a case's runs. Fails the test if the recording is stale."""
    if not fresh(case):
        pytest.fail(f"the facts of this case are out of date: {COMMAND} {case.name!r}")
    return json.loads(_lines(path(case))[case.name])["runs"]


def record(case: Case) -> str:
    """Run a case, hold it against its verdict, and return the line that keeps its facts."""
    runs, *judged = live(case)
    case.hold(*judged)
    kept = json.loads(json.dumps([_kept(run.facts) for run in runs]))
    case.hold(*replay(case, kept))
    found = {"case": case.name, "key": key(case), "runs": kept}
    line = json.dumps(found, separators=(",", ":"))
    for place in (os.path.realpath(sys.prefix), sys.prefix, sys.base_prefix):
        line = line.replace(place, "/python")  # where this machine has it says nothing
    return line.replace(str(ROOT), "/tutorial")


def write(recorded: dict[str, str]):
    """Keep the lines of these cases. To compress a file of many takes 20 seconds."""
    FOLDER.mkdir(exist_ok=True)
    for file in {path(CASES[name]) for name in recorded}:
        ours = {name: line for name, line in recorded.items() if path(CASES[name]) == file}
        lines = _lines(file) | ours
        text = "\n".join(lines[name] for name in CASES if name in lines)
        file.write_bytes(lzma.compress(text.encode()))
    _lines.cache_clear()


def path(case: Case) -> Path:
    return FOLDER / f"{case.lesson}.jsonl.xz"


@cache
def _lines(path):
    """The lines of a file, by case."""
    if not path.exists():
        return {}
    text = lzma.decompress(path.read_bytes()).decode()
    return {json.JSONDecoder().raw_decode(line, len(CASE))[0]: line for line in text.splitlines()}


def fresh(case: Case) -> bool:
    """Whether a case has a recording, with the key of the present code."""
    line = _lines(path(case)).get(case.name, "")
    return line.startswith(f'{CASE}{json.dumps(case.name)},"key":"{key(case)}"')


def key(case: Case) -> str:
    exercise = case.exercise
    gpt = f"{exercise.runs}{_code(exercise.solution)}" if exercise.stage else ""
    return hashlib.sha256(f"{_code(case.text)}{_around()}{gpt}".encode()).hexdigest()[:32]


@cache
def _around():
    """What each case runs beside its script."""
    files = [ROOT / name for name in (*FILES, "workshop/acts.py", "workshop/scenarios.py")]
    files += [file for folder in PROBES for file in sorted((ROOT / folder).rglob("*.py"))]
    return "".join(_code(file.read_text(encoding="utf-8")) for file in files)


def _code(text):
    """The syntax tree, without docstrings. Of a script that is no Python, its text."""
    try:
        return code(ast.parse(text))
    except (SyntaxError, ValueError):
        return text


def _kept(facts):
    """The facts that the checks read, smaller: see above."""
    numbers = {t: n for n, t in enumerate(sorted({fact["t"] for fact in facts}))}
    gradients, kept = Counter(), []
    for fact in facts:
        gradients[fact["pid"]] += fact["kind"] == "gradient"
        most = fact["kind"] == "gradient" and gradients[fact["pid"]] > GRADIENTS
        if fact["kind"] == "forward":  # once per batch, and judged by the doctor alone
            fact = {name: fact[name] for name in ("kind", "t", "pid", "sync") if name in fact}
        if fact["kind"] not in UNREAD and not most:
            kept.append(_short(fact) | {"t": numbers[fact["t"]]})
    return kept


def _short(value):
    if isinstance(value, float):
        return float(f"{value:.8g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    return {key: _short(one) for key, one in value.items()} if isinstance(value, dict) else value


def main(words):
    stale = [name for name, case in CASES.items() if words == ["--stale"] and not fresh(case)]
    names = list(CASES) if words == ["--all"] else stale if words == ["--stale"] else words
    wrong, recorded = 0, {}
    with ThreadPoolExecutor(int(os.environ.get("WORKERS", "2"))) as pool:
        for name, tried in [(name, pool.submit(record, CASES[name])) for name in names]:
            error = tried.exception()
            print(f"{'wrong' if error else 'recorded'}: {name}", error or "", flush=True)
            wrong += bool(error)
            if not error:
                recorded[name] = tried.result()
            if len(recorded) == 20:  # so that Ctrl-C costs no more
                write(recorded)
                recorded.clear()
    write(recorded)
    for file in set(FOLDER.glob("*.xz")) - {path(case) for case in CASES.values()}:
        file.unlink()  # of a lesson that is no more
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

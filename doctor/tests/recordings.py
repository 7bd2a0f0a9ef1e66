"""Record the facts of an example's runs in a file, and judge them again later, without a process.

A file of `facts/` has, compressed, a line with the key, then a line about each run and its facts in
order. What a verdict cannot depend on is left out: times, and which fingerprint a tensor has.
"""

import ast
import hashlib
import json
import lzma
import os
import re
import shlex
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import ddp_doctor
from ddp_doctor.diagnosis import Diagnosis
from ddp_doctor.recorded_run import Run

FACTS = Path(__file__).parent / "facts"
PACKAGE = Path(ddp_doctor.__file__).parent
UNUSED = ("bound", "removed")  # kinds


def command_for(example) -> str:
    """What records an example again; with `-k run_has` in place of the name, it records all."""
    tests = os.path.relpath(Path(__file__).with_name("test_verdicts.py"))
    name = shlex.quote(f"{tests}::test_a_run_has_the_verdict[{example.name}]")
    return f"python -m pytest --record -m '' {name}"


def key_of(example) -> str:
    """A checksum of all that the facts depend on, without comments and docstrings."""
    texts = example.files.items()
    scripts = [_code(text) if name.endswith(".py") else text for name, text in texts]
    parts = [_probe(), *scripts, *example.words, example.plan, str(example.cpu)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def _probe():
    paths = [PACKAGE / "observer.py", *sorted((PACKAGE / "probe").glob("*.py"))]
    texts = [path.read_text() for path in paths if path.name != "fact_kinds.py"]
    return "\n".join(map(_code, texts))


def _code(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            del node.body[0]
        if isinstance(node, ast.JoinedStr):  # 3.12.3 adds empty strings to some
            node.values = [part for part in node.values if part.value != ""]
    shown = {"show_empty": True} if sys.version_info >= (3, 13) else {}
    # The same on each version of Python: type_params are new in 3.12.
    return ast.dump(tree, **shown).replace(", type_params=[]", "")


def path_of(example) -> Path:
    return FACTS / f"{re.sub('[^a-z0-9]+', '_', example.name.lower()).strip('_')}.jsonl.xz"


def write(example, one: Diagnosis):
    """Record the runs of a diagnosis, while their files are there."""
    runs = {"run": one.run, "killed": one.killed, "reference": one.run.reference,
            "perturbed": one.run.perturbed}  # fmt: skip
    lines = [{"key": key_of(example), "torch": version("torch")}]
    for name, run in runs.items():
        if run:
            files = [fact.get(key) for fact in run.facts for key in ("file", "subset")]
            paths = {fact.get("path") for fact in run.all("opened", "elsewhere", "renamed")}
            lines.append({
                "run": name, "repeats": run.repeats, "equally_long": run.equally_long,
                "zips": sorted(path for path in paths if run.begins(path, b"PK")),
                "indices": {file: run.indices(file) for file in filter(None, files)},
            })  # fmt: skip
            left_out = {"t", "call"}
            kept = [fact for fact in run.facts if fact["kind"] not in UNUSED]
            lines += [{k: v for k, v in fact.items() if k not in left_out} for fact in kept]
    text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
    pythons = (os.path.realpath(sys.prefix), sys.prefix, sys.base_prefix)
    places = {Path.cwd(): "/here", one.folder: "/copies", **dict.fromkeys(pythons, "/python")}
    for place, name in {**places, PACKAGE: "/ddp_doctor"}.items():
        text = text.replace(str(place), name)
    path_of(example).write_bytes(lzma.compress(_renamed(text).encode(), preset=9))


def _renamed(text):
    """Fingerprints look random, which takes room; only their equality matters."""
    names = {}
    return re.sub(r'"[0-9a-f]{8}"', lambda m: f'"{names.setdefault(m[0], len(names))}"', text)


def read(example) -> Diagnosis:
    """The recorded runs. The key has a separate test."""
    found, runs = lzma.decompress(path_of(example).read_bytes()).decode().splitlines(), {}
    for number, line in enumerate(map(json.loads, found[1:])):
        if "run" in line:
            about, runs[line["run"]] = line, (line, [])
        else:
            runs[about["run"]][1].append({"t": number, **line})
    one = Diagnosis(list(example.words), Path("/copies"))
    told = {name: RecordedRun(example, *parts) for name, parts in runs.items()}
    one.run, one.killed = told["run"], told.get("killed")
    one.run.reference, one.run.perturbed = told.get("reference"), told.get("perturbed")
    if one.killed:
        one.killed.reference = one.run
    return one


def recorded_key(example) -> str | None:
    path = path_of(example)
    if not path.exists():
        return None
    return json.loads(lzma.decompress(path.read_bytes()).partition(b"\n")[0])["key"]


class RecordedRun(Run):
    """A run whose files are gone."""

    def __init__(self, example, about, facts):
        super().__init__(facts)
        self._indices, self._zips, self._files = about["indices"], about["zips"], example.files
        self.repeats, self.equally_long = about["repeats"], about["equally_long"]

    def text(self, file) -> str | None:
        return self._files.get(file)

    def begins(self, path, magic) -> bool:
        return path in self._zips

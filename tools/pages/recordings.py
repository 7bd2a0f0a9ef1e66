"""What the commands of the pages printed, recorded in docs/recorded/PAGE.toml.

    kept = Recordings(root)
    recording = kept.find(lines)           # UserError if it is missing, out of date or edited
    recording.ran[0].output, recording.date

A run that several pages show is in the file of the first one. `key` says on which lines and files a
recording depends (keys.py), `digest` is a hash of everything else in it, so an edit by hand shows.
"""

import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from tools.errors import UserError
from tools.files import write_whole

from .keys import Keys
from .runs import Lines
from .shell import Ran

HEAD = """\
# What the commands of this page printed: written by python -m tools.pages record, not by hand.
"""


@dataclass(frozen=True)
class Recording:
    """What the lines of a run printed, when and on what."""

    ran: tuple[Ran, ...]
    key: str
    date: str
    torch: str
    python: str  # empty where nobody noted it
    processor: str
    elsewhere: str = ""  # why it is not run again when its files change

    @property
    def lines(self) -> Lines:
        return tuple(one.line for one in self.ran)

    @property
    def digest(self) -> str:
        facts = [(one.line, one.output, one.status, one.seconds) for one in self.ran]
        content = [facts, self.key, self.date, self.torch, self.python, self.processor]
        content.append(self.elsewhere)
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    @property
    def machine(self) -> str:
        python = f"Python {self.python}" if self.python else ""
        return ", ".join(filter(None, [f"torch {self.torch}", python, self.processor]))

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.ran)


def of_now(ran: Iterable[Ran], key: str, elsewhere: str) -> Recording:
    """The recording of a run that has just ended on this machine."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    processor = (elsewhere and _gpus()) or _processor()
    facts = today, version("torch"), platform.python_version(), processor
    return Recording(tuple(ran), key, *facts, elsewhere)


def _gpus():
    if not shutil.which("nvidia-smi"):
        return None
    words = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = Counter(subprocess.run(words, capture_output=True, text=True).stdout.splitlines())
    return ", ".join(f"{count} × {name}" for name, count in names.items())


def _processor():
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search("(?m)^model name[ \t]*: *(.+)", text)
    return f"{' '.join(found[1].split()) if found else platform.machine()}, {os.cpu_count()} cores"


class Recordings:
    """All recordings of a tree, each under its lines."""

    def __init__(self, root: Path):
        self.root, self.folder = root, root / "docs" / "recorded"
        self.keys = Keys(root)

    def file(self, page: str) -> Path:
        return self.folder / f"{page}.toml"

    @cached_property
    def of_pages(self) -> dict[str, dict[Lines, tuple[Recording, str]]]:
        """For each file its recordings, each with the digest that the file has."""
        return {file.stem: load(file) for file in sorted(self.folder.glob("*.toml"))}

    @cached_property
    def all(self) -> dict[Lines, tuple[Recording, str]]:
        """The recording of these lines, whether or not it holds, and the digest in its file."""
        found = {}
        for recordings in self.of_pages.values():
            for lines, (recording, digest) in recordings.items():
                if lines not in found or not self._problem(recording, digest):
                    found[lines] = recording, digest
        return found

    def get(self, lines: Lines) -> Recording | None:
        """The recording of these lines, whether or not it holds."""
        return self.all[lines][0] if lines in self.all else None

    def problem_of(self, lines: Lines) -> str | None:
        """Why these lines have to be recorded; None if their recording holds."""
        return self._problem(*self.all[lines]) if lines in self.all else "is missing"

    def _problem(self, recording, digest):
        if digest != recording.digest:
            return "was edited by hand"
        if recording.key != self.keys.of(recording.lines) and not recording.elsewhere:
            return "is out of date"
        return None

    def find(self, lines: Lines) -> Recording:
        """A recording that holds. Raises UserError with the command that makes it."""
        if problem := self.problem_of(lines):
            raise UserError(
                f"the recording of this command {problem}: python -m tools.pages record --stale\n"
                f"    {lines[0]}"
            )
        return self.get(lines)


def load(file: Path) -> dict[Lines, tuple[Recording, str]]:
    """The recordings of a file, each with its digest. Raises UserError if the file is broken."""
    found = {}
    try:
        for table in tomllib.loads(file.read_text(encoding="utf-8")).get("run", []):
            digest, steps = table.pop("digest"), table.pop("line")
            one = Recording(tuple(Ran(**step) for step in steps), **table)
            found[one.lines] = one, digest
    except (ValueError, KeyError, TypeError) as error:  # neither UTF-8 nor TOML, or a part is gone
        command = f"python -m tools.pages record {file.stem}"
        raise UserError(f"{file} was edited by hand ({error}): rm {file} && {command}") from None
    return found


def write(file: Path, recordings: Iterable[tuple[Recording, str]]):
    """Replace a file whole, or delete it if nothing is left to keep.

    Each recording comes with the digest to write: an edit by hand still shows if another
    recording in the same file is made anew.
    """
    texts = [_text(one, digest) for one, digest in recordings]
    if texts:
        file.parent.mkdir(exist_ok=True)
        write_whole(file, "\n".join([HEAD, *texts]).encode())
    else:
        file.unlink(missing_ok=True)


def _text(one, digest):
    lines = ["[[run]]", f"key = {_string(one.key)}", f"digest = {_string(digest)}"]
    for name in ("date", "torch", "python", "processor", "elsewhere"):
        if (value := getattr(one, name)) or name == "python":
            lines.append(f"{name} = {_string(value)}")
    for ran in one.ran:
        lines += ["", "[[run.line]]", f"line = {_string(ran.line)}"]
        lines += [f"status = {ran.status}", f"seconds = {ran.seconds}"]
        lines += [f"output = {_string(ran.output)}"]
    return "\n".join(lines) + "\n"


def _string(text):
    """A TOML string, with escapes only where TOML needs them."""
    start = "\n" if "\n" in text else ""
    if not re.search(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]|'''|'$", text):
        mark = "'''" if start or "'" in text else "'"
        return f"{mark}{start}{text}{mark}"
    lines = (json.dumps(line, ensure_ascii=False)[1:-1] for line in text.split("\n"))
    mark = '"""' if start else '"'
    return mark + start + "\n".join(lines).replace("\x7f", "\\u007f") + mark

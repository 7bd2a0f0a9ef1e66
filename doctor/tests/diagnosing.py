"""Run the doctor on a script, as a user does, and read what it found."""

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ddp_doctor.descendants import Command

PACKAGE = Path(__file__).resolve().parents[1]
DOCTOR = [sys.executable, "-m", "ddp_doctor"]
LIMIT = 600  # seconds; it catches hangs, even on a busy machine, and says nothing about speed
LAUNCHERS = re.compile(r"(LOCAL_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*|DOCTOR_.*")


def environment(**variables: str) -> dict[str, str]:
    """Alike on every machine: our Python first, one thread, no GPU, no launcher's variables."""
    inherited = {name: text for name, text in os.environ.items() if not LAUNCHERS.fullmatch(name)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    alike = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(PACKAGE)}
    return inherited | {"PATH": path} | alike | variables


@dataclass(frozen=True)
class Ran:
    """A command that has ended."""

    status: int
    out: str  # stdout and stderr, as they came

    @property
    def tail(self) -> str:
        return "\n".join(self.out.splitlines()[-40:])


def run(words, cwd, **variables: str) -> Ran:
    """Run a command to its end, and kill what it leaves."""
    with tempfile.TemporaryFile() as log:
        options = {"stdout": log, "stderr": subprocess.STDOUT}
        with Command(words, cwd, environment(**variables), **options) as command:
            status = command.process.wait(LIMIT)
        log.seek(0)
        return Ran(status, log.read().decode(errors="replace"))


@dataclass(frozen=True)
class Diagnosis:
    ran: Ran
    report: dict

    @property
    def found(self) -> dict[str, list[dict]]:
        found = {}
        for finding in self.report["findings"]:
            found.setdefault(finding["rule"], []).append(finding)
        return found

    @property
    def severe(self) -> list[str]:
        return [f["rule"] for f in self.report["findings"] if f["severity"] != "note"]


def diagnose(folder: Path, *words: str, options: tuple[str, ...] = (), **env: str) -> Diagnosis:
    """Run `ddp-doctor OPTIONS -- WORDS` in the folder. Its report is {} if there is none."""
    file = folder / "report.json"
    ran = run([*DOCTOR, *options, "--json", file, "--", *words], folder, **env)
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return Diagnosis(ran, json.loads(text) if text else {})


def python(folder: Path, text: str, *options: str) -> Diagnosis:
    """Diagnose a script with this text."""
    (folder / "train.py").write_text(text)
    return diagnose(folder, "python", "train.py", options=options)

"""Run the doctor on a script, as a user does, and read what it found."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.processes import ROOT
from tools.processes import Process, environment, run


@dataclass(frozen=True)
class Diagnosis:
    ran: Process
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
    command = [sys.executable, "-m", "ddp_doctor", *options, "--json", file, "--", *words]
    alike = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # on every machine
    ran = run(command, cwd=folder, env=environment(**{"PYTHONPATH": str(ROOT), **alike, **env}))
    text = file.read_text() if file.exists() else ""
    file.unlink(missing_ok=True)
    return Diagnosis(ran, json.loads(text) if text else {})


def python(folder: Path, text: str, *options: str) -> Diagnosis:
    """Diagnose a script with this text."""
    (folder / "train.py").write_text(text)
    return diagnose(folder, "python", "train.py", options=options)

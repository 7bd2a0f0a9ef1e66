"""A learner's folder: their scripts, and a log of what they have done.

    my-workshop/progress.jsonl                  one line per event; the workshop only appends
    my-workshop/multigpu/save-once/multigpu.py  theirs: written once, then only moved aside
    my-workshop/multigpu/save-once/utils.py     and guard.py, which it imports

The workshop writes nothing else there.
"""

import contextlib
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path

from tools.errors import UserError

from .exercises import ROOT, Exercise, exercises

DEFAULT = "my-workshop"
LOG = "progress.jsonl"


@dataclass(frozen=True)
class Folder:
    """Raises UserError if a file cannot be written, or if an exercise has not been started."""

    path: Path

    def events(self) -> list[dict]:
        """What has been done, oldest first: `exercise`, `event`, `t`. Skips half-written lines."""
        found = []
        with contextlib.suppress(OSError):
            for line in (self.path / LOG).read_text("utf-8", errors="replace").splitlines():
                with contextlib.suppress(ValueError):
                    found.append(json.loads(line))
        return found

    def log(self, exercise: Exercise | None, event: str, **fields):
        """Append an event. `exercise` is None for "ready", which is about the machine."""
        name = exercise.name if exercise else ""
        line = json.dumps({"t": round(time.time()), "exercise": name, "event": event, **fields})
        with _told(self.path / LOG), open(self.path / LOG, "a", encoding="utf-8") as file:
            file.write("\n" + line)  # after a damaged line, too

    def of(self, exercise: Exercise, *kinds: str) -> list[dict]:
        return [e for e in self.events() if e["exercise"] == exercise.name and e["event"] in kinds]

    def reached(self, exercise: Exercise) -> int:
        """How many steps of a path its checks have proven, since it was last reset."""
        proven = [e.get("reached", 0) for e in self.of(exercise, "check", "reset")]
        return (proven or [0])[-1]

    @property
    def solved(self) -> set[str]:
        """The names of the exercises that are solved."""
        return {event["exercise"] for event in self.events() if event["event"] == "solved"}

    def current(self) -> Exercise:
        """The exercise begun last."""
        for event in reversed(self.events()):
            if event["event"] == "start" and event["exercise"] in exercises():
                return exercises()[event["exercise"]]
        raise UserError("no exercise has been started yet: python -m workshop start")

    def next(self) -> Exercise | None:
        """The first unsolved exercise, from the one begun last on, then from the top."""
        names, solved = list(exercises()), self.solved
        last = [event["exercise"] for event in self.events() if event["exercise"] in names][-1:]
        place = names.index(last[0]) if last else 0
        todo = [name for name in names[place:] + names[:place] if name not in solved]
        return exercises()[todo[0]] if todo else None

    def script(self, exercise: Exercise) -> Path:
        """Raises UserError if the exercise has not been started, or if its script is gone."""
        script = self.path / exercise.name / exercise.file
        if not script.is_file():
            raise UserError(f"no {script}: python -m workshop start {exercise.name}")
        return script

    def start(self, exercise: Exercise) -> tuple[Path, bool]:
        """The script, and whether it is new. Never overwrites a script."""
        place = self.path / exercise.name
        with _told(place):
            fresh = _write_new(place / exercise.file, exercise.start)
            for name in exercise.others:
                _write_new(place / name, (ROOT / name).read_text(encoding="utf-8"))
        self.log(exercise, "start")
        return place / exercise.file, fresh

    def reset(self, exercise: Exercise) -> Path:
        """Move the script aside and write the start again. Returns the old script's new path."""
        script = self.script(exercise)
        names = (script.with_name(f"{script.stem}.{n}.txt") for n in itertools.count(1))
        kept = next(name for name in names if not name.exists())
        with _told(script):
            script.rename(kept)
            _write_new(script, exercise.start)
        self.log(exercise, "reset")
        return kept

    def files(self, exercise: Exercise) -> list[Path]:
        """The script, and all Python files beside it. A check copies them and runs the first."""
        script, place = self.script(exercise), self.path / exercise.name
        others = [*place.glob("[!.]*.py"), *place.glob("[!.]*/[!.]*.py")]
        return [script, *sorted({file for file in others if file.is_file()} - {script})]


def _write_new(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def _told(path):
    try:
        yield
    except OSError as error:
        why = f"cannot write {path} ({error.strerror})"
        raise UserError(f"{why}: name another folder with --dir") from None

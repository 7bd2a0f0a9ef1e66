"""The workshop: exercises made from the lessons' edits. Checks judge what a script does.

acts.py    how a check runs commands: observed by ddp_doctor, and limited
scenarios.py  what a check runs of each lesson
probe/     what only the workshop records, inside every process
by_epoch.py   what was recorded, by attempt, rank, epoch and step
verdicts.py   checks: pure functions over the facts; checks/ holds them
exercises.py  starts and solutions, derived from lessons.toml; exercises.toml has hints and hunts
folder.py  a learner's folder: files and progress
ready.py   whether a learner's machine can do all this
room.py    for the instructor: how far each learner is
"""

import sys
from importlib.util import find_spec

found = None  # the system's Python, if .venv is not active
if sys.version_info < (3, 11):  # noqa: UP036
    found = f"is Python {sys.version.split()[0]}, but the workshop needs 3.11 or newer"
elif not find_spec("ddp_doctor"):
    found = "lacks what `make run` installs"
if found:
    sys.exit(f"{sys.executable} {found}: source .venv/bin/activate")

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

if sys.version_info < (3, 11):  # noqa: UP036 - the system's, if .venv is not active
    found = f"{sys.executable} is Python {sys.version.split()[0]}"
    sys.exit(f"{found}, but the workshop needs 3.11 or newer: source .venv/bin/activate")

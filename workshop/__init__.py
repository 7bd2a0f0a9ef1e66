"""The workshop: exercises made from the lessons' edits. Checks judge what a script does.

probe/     runs inside every process and records facts, one JSON object per line
observe.py starts a run with the probe, limits it, and terminates whatever is left
facts.py   the facts, by attempt, rank, epoch and step
judge.py   checks: pure functions over the facts; checks/ holds them
exercises.py  starts and solutions, derived from lessons.toml; exercises.toml has hints and hunts
folder.py  a learner's folder: files and progress
"""

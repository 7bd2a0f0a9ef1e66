"""The workshop: exercises made of the edits of the lessons, checked by what a program does.

probe/     goes along with a run and writes down facts, one JSON object a line
observe.py starts a run with the probe, bounds it, and ends all of it
facts.py   the facts, by attempt, rank, epoch and step
judge.py   checks: pure functions over the facts; checks/ holds them
exercises.py  starts and solutions, derived from lessons.toml; exercises.toml has hints and hunts
folder.py  a learner's folder: files and progress
"""

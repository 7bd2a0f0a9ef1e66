"""Thirty learners on one machine check at once, and get the right ports, files and verdicts."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import LESSONS
from tests.workshop.scripts import examined, mistake, told
from workshop.exercises import exercises
from workshop.verdicts import passed

pytestmark = pytest.mark.soak
LEARNERS = 30


def test_thirty_right_answers_at_once(note):
    def check(_):
        return examined("multinode", LESSONS["multinode"].source.text)

    begun = time.monotonic()
    with ThreadPoolExecutor(LEARNERS) as pool:
        for seen, findings in pool.map(check, range(LEARNERS)):
            assert passed(findings), told(seen, findings)
    note(f"{LEARNERS} checks of multinode at once: all right, {time.monotonic() - begun:.0f} s")


def test_hangs_are_told_from_a_machine_that_is_busy(note):
    """Each script hangs while the others keep the processors busy."""
    hang = exercises()["multigpu/outliers"]

    with ThreadPoolExecutor(10) as pool:
        for name, evidence in pool.map(lambda _: mistake("multigpu", hang.start), range(10)):
            assert name == hang.check, evidence
    note("10 checks of multigpu/outliers at once: all say which rank takes fewer steps")

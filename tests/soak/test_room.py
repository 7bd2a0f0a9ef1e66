"""Thirty learners on one machine check at once, and get the right ports, files and verdicts."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workshop.cases import CASES
from tests.workshop.recorded import live

pytestmark = pytest.mark.soak
LEARNERS = 30


def checked(name, learners):
    with ThreadPoolExecutor(learners) as pool:
        for _, *judged in pool.map(live, [CASES[name]] * learners):
            CASES[name].hold(*judged)


def test_thirty_right_answers_at_once(note):
    begun = time.monotonic()
    checked("multinode@2", LEARNERS)
    note(f"{LEARNERS} checks of multinode at once: all right, {time.monotonic() - begun:.0f} s")


def test_hangs_are_told_from_a_machine_that_is_busy(note):
    """Each script hangs while the others keep the processors busy."""
    checked("multigpu/outliers", 10)
    note("10 checks of multigpu/outliers at once: all say which rank takes fewer steps")

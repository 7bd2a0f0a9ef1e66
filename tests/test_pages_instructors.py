"""The page for instructors: its timetables name exercises that exist, and it says something of each
edit."""

import re

from tests.processes import LESSONS, ROOT
from workshop.checks import LESSONS as TAUGHT
from workshop.exercises import exercises

PAGE = (ROOT / "docs" / "pages" / "instructors.rst").read_text(encoding="utf-8")
NAMES = [name for name, one in exercises().items() if one.lesson.name in TAUGHT]  # of the spine


def test_the_timetables_take_as_many_exercises_as_they_promise():
    tables = re.findall(r"with (\d+) of the (\d+) exercises:\n\n=+  =+\n(.*?)\n=", PAGE, re.DOTALL)
    assert len(tables) == 2
    for promised, total, rows in tables:
        taken = NAMES[:8] if "up to exercise 8" in rows else []
        for first, last in re.findall(r"exercises (\d+) to (\d+)", rows):
            taken += NAMES[int(first) - 1 : int(last)]
        named = re.findall(r"``([\w-]+)``", rows)
        taken += [name for name in NAMES if name.partition("/")[2] in named]
        assert (len(set(taken)), len(NAMES)) == (int(promised), int(total))
    hunts = {name for name in NAMES if exercises()[name].title.startswith("Bug hunt")}
    assert f"The {len(hunts - set(taken))} bug hunts in neither table" in PAGE


def test_the_page_speaks_of_every_edit_of_the_workshop():
    found = re.findall(r"(?m)^(\S.*) ``([\w-]+)``\n   \S", PAGE)
    edits = [edit for lesson in TAUGHT for edit in LESSONS[lesson].edits]
    assert found == [(one.title, one.name) for one in edits]

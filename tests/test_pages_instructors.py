"""The page for instructors: its timetables add up, and it has two sentences per edit."""

import re
from itertools import pairwise

import pytest

from tests.processes import ROOT
from tests.sites import CONF, Site, fails
from workshop.checks import LESSONS
from workshop.exercises import exercises

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")

PAGE = (ROOT / "docs" / "pages" / "instructors.rst").read_text(encoding="utf-8")
NAMES = [name for name, one in exercises().items() if one.lesson.name in LESSONS]  # of the spine
EDITS = 7  # of multigpu; "up to exercise 7" in the second timetable


def timetables():
    """Of each table its rows, `(minute, text)`, and how many exercises its title promises."""
    for promised, total, table in re.findall(
        r"with (\d+) of the (\d+) exercises:\n\n=+  =+\n(.*?)\n=+  =+\n", PAGE, re.DOTALL
    ):
        rows = re.findall(r"(?m)^(\d):(\d\d)    (.*(?:\n {8}.*)*)", table)
        assert int(total) == len(NAMES)
        yield int(promised), [(60 * int(h) + int(m), " ".join(text.split())) for h, m, text in rows]


def exercises_of(text):
    """The exercises that a row names, by number or by name."""
    found = [
        NAMES[number - 1]
        for first, last in re.findall(r"exercises (\d+) to (\d+)", text)
        for number in range(int(first), int(last) + 1)
    ]
    words = re.findall(r"``([\w-]+)``", text)
    return found + [name for name in NAMES if name.partition("/")[2] in words]


def test_the_timetables_add_up():
    tables = list(timetables())
    assert [rows[-1][0] for _, rows in tables] == [4 * 60, 8 * 60]
    for promised, rows in tables:
        taken = NAMES[:EDITS] if "up to exercise 7" in rows[0][1] else []
        for (begin, text), (end, _) in pairwise(rows):
            named = exercises_of(text)
            if "up to exercise" not in text:
                assert end - begin >= 15 * max(1, len(named)) or not named, text
            taken += named
        assert len(taken) == len(set(taken)) == promised
    hunts = [name for name in NAMES if exercises()[name].title.startswith("Bug hunt")]
    left = len(set(hunts) - set(taken))
    assert f"The other {left} bug hunts" in PAGE


def test_every_lesson_of_the_workshop_has_its_sentences():
    assert tuple(re.findall(r"(?m)^\.\. say:: (\w+)$", PAGE)) == LESSONS


def test_an_edit_without_two_sentences_and_sentences_without_an_edit_are_reported(tmp_path):
    conf = CONF.replace('"docs._ext.run"', '"docs._ext.run", "docs._ext.say"')
    site = Site(tmp_path / "site", conf)
    names = [edit.name for edit in site.lesson.edits]

    def add(names, text="It is so. Look there.", lesson="multigpu"):
        items = "".join(f"   {name}\n      {text}\n\n" for name in names)
        site.add(site.page, f"\n.. say:: {lesson}\n\n{items}")

    add(names)
    status, output = site.build()
    assert status == 0, output
    add(names[1:])
    add([*names, "nope"])
    add(names, "One. Two! Three?")
    add(names, "Only one.")
    add(names, lesson="nothing")
    fails(
        site,
        f"in this order, but there are sentences for {', '.join(names[1:])}",
        f"in this order, but there are sentences for {', '.join(names)}, nope",
        f"{names[0]} has 3 sentences: say it in two",
        f"{names[0]} has 1 sentences: say it in two",
        "no lesson is called 'nothing'",
    )

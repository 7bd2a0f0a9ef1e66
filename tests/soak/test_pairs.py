"""Two runs at once in one folder, as two people or an impatient one start them: no collision."""

import os
from collections import Counter

import pytest

from tests.processes import Process

PAIRS = int(os.environ.get("SOAK_PAIRS", 100))


@pytest.mark.soak
@pytest.mark.parametrize(
    "lessons",
    [
        ("multigpu", "multigpu"),
        ("multigpu_torchrun", "multigpu_torchrun"),
        ("multigpu", "multigpu_torchrun"),
    ],
    ids=" and ".join,
)
def test_pairs(lessons, tmp_path, note):
    ends = Counter()
    for number in range(PAIRS):
        folder = tmp_path / str(number)
        folder.mkdir()
        # Both with the default checkpoint, saved at every epoch: where it can collide, it does.
        first, second = (Process(lesson, 10, 1, cwd=folder) for lesson in lessons)
        with first, second:
            ends.update((process.wait(300), process.err) for process in (first, second))
    clean = ends[0, ""]
    note(f"{' and '.join(lessons)} at once: {clean} of {2 * PAIRS} runs ended cleanly")
    assert ends == {(0, ""): 2 * PAIRS}

"""Exit status 0 and nothing on stderr, hundreds of times, on a machine with too much to do."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import SPINE, run

RUNS = int(os.environ.get("SOAK_RUNS", 300))
AT_ONCE = 3  # times two processes and their launcher, on two cores


@pytest.mark.soak
@pytest.mark.parametrize("lesson", SPINE)
def test_clean_ends(lesson, tmp_path, note):
    def once(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = run(lesson, 1, 1, cwd=folder, limit=300)
        return process.status, process.err

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = Counter(pool.map(once, range(RUNS)))
    note(f"{lesson}: {ends[0, '']} of {RUNS} clean ends, {AT_ONCE} runs at once")
    assert ends == {(0, ""): RUNS}

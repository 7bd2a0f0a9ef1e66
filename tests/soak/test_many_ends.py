"""How hundreds of runs end on a busy machine: with nothing on stderr, or with the name of the rank
that failed first."""

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import SPINE, run
from tests.test_ends import crash

RUNS = int(os.environ.get("SOAK_RUNS", 300))
CRASHES = int(os.environ.get("SOAK_CRASHES", 100))
AT_ONCE = 3  # times two processes and their launcher, on two cores
FAULTS = {
    "an exception": ('{}["boom"]', "KeyError: 'boom'"),
    "SIGKILL": ("os.kill(os.getpid(), 9)", "terminated with signal SIGKILL"),
}

pytestmark = pytest.mark.soak


def ends(times, folder, lesson, *args):
    """The processes of `times` runs, each in its own folder. A run that hangs fails."""

    def once(number):
        place = folder / str(number)
        place.mkdir()
        return run(lesson, *args, cwd=place, limit=300)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(once, range(times))


@pytest.mark.parametrize("lesson", SPINE)
def test_clean_ends(lesson, tmp_path, note):
    found = Counter((one.status, one.err) for one in ends(RUNS, tmp_path, lesson, 1, 1))
    note(f"{lesson}: {found[0, '']} of {RUNS} clean ends, {AT_ONCE} runs at once")
    assert found == {(0, ""): RUNS}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_failure_is_named(fault, rank, tmp_path, note, monkeypatch):
    crashing, says = FAULTS[fault]
    crash("multigpu", f"rank {rank}", tmp_path, monkeypatch)
    script = tmp_path / "multigpu.py"
    script.write_text(script.read_text().replace('{}["boom"]', crashing))
    found = Counter()
    for one in ends(CRASHES, tmp_path, "multigpu", 100, 10):
        named = says in one.err and "lost another" not in one.err
        found[one.status, named, "terminate called" in one.err] += 1
    note(f"multigpu, {fault} in rank {rank}: {found[1, True, False]} of {CRASHES} crashes named")
    assert found == {(1, True, False): CRASHES}

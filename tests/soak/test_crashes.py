"""A rank that fails under mp.spawn is the one that is named, on a machine with too much to do."""

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import ROOT, Process

CRASHES = int(os.environ.get("SOAK_CRASHES", 100))
AT_ONCE = 4  # times two ranks and their parent, on two cores
FAULTS = {
    "an exception": ('{}["boom"]', "KeyError: 'boom'"),
    "SIGKILL": ("os.kill(os.getpid(), 9)", "terminated with signal SIGKILL"),
}


@pytest.mark.soak
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_failure_is_named(fault, rank, tmp_path, note, monkeypatch):
    crash, says = FAULTS[fault]
    for file in ("utils.py", "guard.py"):
        shutil.copy(ROOT / file, tmp_path)
    text = (ROOT / "multigpu.py").read_text()
    line = "        loss.backward()\n"
    assert text.count(line) == 1
    crashing = f"{line}        dist.get_rank() == {rank} and {crash}\n"
    (tmp_path / "multigpu.py").write_text(text.replace(line, crashing))
    monkeypatch.setattr("tests.processes.ROOT", tmp_path)

    def once(number):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Process("multigpu", 100, 10, cwd=folder) as process:
            status = process.wait(300)  # a hang fails
        named = says in process.err and "lost another" not in process.err
        return status, named, "terminate called" in process.err

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ends = Counter(pool.map(once, range(CRASHES)))
    note(f"multigpu, {fault} in rank {rank}: {ends[1, True, False]} of {CRASHES} crashes named")
    assert ends == {(1, True, False): CRASHES}

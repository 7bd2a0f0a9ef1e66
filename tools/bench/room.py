"""Measure what a check of the workshop needs: processor, time, memory; and so what a room needs.

    python tools/bench/room.py > tools/bench/results/room.txt

Per lesson it runs `python -m workshop check` on a right answer, then on a bug hunt as it starts.
The processor seconds, user and system, are those of the command and of all that it started. Other
programs on the machine do not count in them, but lengthen the seconds on the clock. The memory is
what the processes share with no other process, summed and sampled ten times a second, at its peak:
what one more check adds to the machine.
"""

import argparse
import contextlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.bench.trainers import hardware  # noqa: E402
from workshop.checks import LESSONS  # noqa: E402
from workshop.exercises import exercises  # noqa: E402
from workshop.folder import Folder  # noqa: E402

UNSOLVED = "multigpu/outliers"
LEARNERS, EVERY = 30, (2, 5, 10)  # minutes between two checks of a learner
MARGIN = 2  # half of the processor time stays free, because checks come in bursts


def check(name: str, status: int) -> tuple[float, float, float]:
    """Processor seconds, seconds on the clock and MB of a check, which must end with `status`."""
    with tempfile.TemporaryDirectory() as place:
        exercise = exercises()[name]
        script, _ = Folder(Path(place)).start(exercise)
        if status == 0:
            script.write_text(exercise.solution, encoding="utf-8")
        words = [sys.executable, "-m", "workshop", "--dir", place, "check"]
        begun, before = time.monotonic(), processor()
        output = Path(place, "output")
        with output.open("w") as file, subprocess.Popen(words, cwd=ROOT, stdout=file) as command:
            peak = 0
            while command.poll() is None:
                peak = max(peak, private(command.pid))
                time.sleep(0.1)
        seconds = time.monotonic() - begun
        assert command.returncode == status, output.read_text(encoding="utf-8")
        return processor() - before, seconds, peak / 1e6


def processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def private(pid: int) -> int:
    """The bytes that a process and its descendants share with no other process."""
    found, total = [], 0
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        found = [root, *root.children(recursive=True)]
    for process in found:
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            total += process.memory_full_info().uss
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    checks = [(name, 0) for name in LESSONS] + [(UNSOLVED, 1)]
    measured = {name: [] for name, _ in checks}
    for _ in range(rounds):
        for name, status in checks:
            measured[name].append(check(name, status))
            print(name, *map(round, measured[name][-1]), file=sys.stderr)
    facts, load = hardware(), os.getloadavg()[2]
    print(f"# python tools/bench/room.py --rounds {rounds}")
    print(f"{facts['cores']} cores, {facts['cpu']}, torch {facts['torch']}, Python "
          f"{facts['python']}, medians of {rounds} checks, load average {load:.1f}")  # fmt: skip
    print(f"\n{'a check of':27} {'processor':>10} {'clock':>8} {'memory':>9}")
    medians = {name: [*map(statistics.median, zip(*measured[name], strict=True))]
               for name, _ in checks}  # fmt: skip
    for name, (used, seconds, memory) in medians.items():
        name += ", unsolved" if name == UNSOLVED else ""
        print(f"{name:27} {used:8.1f} s {seconds:6.1f} s {memory:6.0f} MB")
    used, _, memory = (max(column) for column in zip(*medians.values(), strict=True))
    print(f"\n{LEARNERS} learners, each of whom checks once in       cores")
    for minutes in EVERY:
        cores = MARGIN * LEARNERS * used / (60 * minutes)
        print(f"{minutes:27} minutes {cores:15.1f}")
    print(f"memory, if all check at once: {LEARNERS * memory / 1e3:.0f} GB")


if __name__ == "__main__":
    main()

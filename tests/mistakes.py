"""Mistakes put in: a lesson run as it should not be, and what it says."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.processes import LESSONS, LIMIT, ROOT

# What torchrun tells a process that is alone; port 0 is any free one.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
ALONE |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
FOUR = {**ALONE, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
RESTARTS_ONCE = ("--standalone", "--max-restarts=1")

# Torch says that there is an accelerator; no other part of the script is pretended.
FAKE = """
import runpy, sys, torch
del sys.argv[0]
sys.path.insert(0, {root!r})
torch.version.cuda, torch.version.hip = {cuda!r}, None
torch.accelerator.is_available = lambda: {count} > 0
torch.accelerator.current_accelerator = lambda: torch.device({kind!r})
torch.accelerator.device_count = lambda: {count}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fake(kind="cuda", count=0, cuda=None):
    """A program that runs a lesson with `count` accelerators that are not there.

    Faked are four answers of torch: the number and kind of accelerators, whether there is any, and
    the version of CUDA that it is built for.
    """
    return FAKE.format(root=str(ROOT), kind=kind, count=count, cuda=cuda)


def python(lesson, *args, cwd, env=None, program=None):
    """`python lesson.py ARGS`, to its end; with `program`, by way of `python -c program`."""
    variables = {"OMP_NUM_THREADS": "1", **os.environ}
    for name in ("NPROC", "TORCHELASTIC_RUN_ID", *ALONE):
        variables.pop(name, None)
    words = [sys.executable, *(("-c", program) if program else ()), str(ROOT / f"{lesson}.py")]
    return subprocess.run(
        [*words, *map(str, args)],
        cwd=cwd,
        env=variables | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def alone(lesson):
    return ALONE if "torchrun" in LESSONS[lesson].run else {}


def check_each(check, cases):
    """`check(case)` for each case, two at once."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, cases))


def check_said_once(process, lesson, says):
    """Our line is said once over all ranks and restarts, and only torchrun shows tracebacks."""
    lines = process.err.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith(f"{lesson}.py: ")]
    assert [lines[number] for number in ours] == [f"{lesson}.py: {says}"], process.err
    traces = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
    assert all(number > ours[0] and "bin/torchrun" in lines[number + 1] for number in traces)
    assert not any(line.startswith("[rank") for line in lines)

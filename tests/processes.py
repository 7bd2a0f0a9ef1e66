"""Start a lesson as its page says, limit every wait, and leave no process behind."""

import functools
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import psutil

from tools import processes, series
from tools.processes import LIMIT, environment

ROOT = Path(__file__).resolve().parent.parent
LESSONS = series.load(ROOT)
SPINE = ("single_gpu", "multigpu", "multigpu_torchrun", "multinode")


def command(lesson, *args, nproc=2, launcher=()):
    """The documented command of `lesson` with other arguments: `(environment, words)`.

    `launcher`, if given, replaces the documented flags of torchrun, which gets the variables of
    launch/restarts.sh.
    """
    variables, words = LESSONS[lesson].command
    variables = variables | _restarts() if words[0] == "torchrun" else variables
    start = next(i for i, word in enumerate(words) if word == "-m" or word.endswith(".py"))
    flags = words[1:start]
    if words[start] == "-m":
        script, variables = words[start : start + 2], {**variables, "PYTHONPATH": str(ROOT)}
    else:
        script = [str(ROOT / words[start])]
    if words[0] == "torchrun":
        flags = [flag for flag in launcher or flags if not flag.startswith("--nproc_per_node")]
        flags.append(f"--nproc_per_node={nproc}")
    else:
        variables = {**variables, "NPROC": str(nproc)}
    return variables, [words[0], *flags, *script, *map(str, args)]


@functools.cache
def _restarts(file=ROOT / "launch" / "restarts.sh"):
    """The variables that launch/restarts.sh sets."""
    words = ["env", "-i", "sh", "-c", f". {file} && env"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    found = (line.partition("=") for line in ran.stdout.splitlines())
    return {name: value for name, _, value in found if name not in ("PWD", "_", "SHLVL")}


STANDALONE = ("--standalone", "--max-restarts=3")
ONCE = ("--standalone", "--max-restarts=0")
# As documented, torchrun picks a port for rank 0 seconds before rank 0 listens: with many tests at
# a time, another program gets it now and then. The port of a shared store is in use from the start.
SHARED, OWN_STORE = ({"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": value} for value in "01")
# The gloo of torch 2.9 and 2.10 prints who is connected, in pieces: ranks may share a line.
PIECES = r"\[Gloo\] Rank | is connected to | peer ranks\. Expected number of [\w ]+ is : |\d+|\n"


def without_gloo(lines):
    """The lines, without those of an older torch's gloo."""
    old = [*map(int, version("torch").split(".")[:2])] < [2, 13]
    return (line for line in lines if not (old and re.fullmatch(f"({PIECES})*", line)))


class Process(processes.Process):
    """A running lesson."""

    def __init__(self, lesson, *args, cwd, nproc=2, launcher=(), env=(), prelude=None):
        if lesson == "multinode" and not launcher:
            launcher = STANDALONE
        variables, words = command(lesson, *args, nproc=nproc, launcher=launcher)
        temporary = Path(cwd) / ".tmp"  # killed, torch and torchrun leave files in it
        temporary.mkdir(exist_ok=True)
        # The last path spares a quarter of `import torch`, unless a test has its own sitecustomize.
        paths = [dict(env).get("PYTHONPATH"), variables.get("PYTHONPATH"), f"{ROOT}/tools/quick"]
        own = {"TMPDIR": str(temporary), "PYTHONPATH": ":".join(filter(None, paths))}
        env = environment(**{**variables, **dict(env), **own})
        super().__init__(words, cwd, env, stderr=subprocess.PIPE, preexec_fn=prelude)

    def _read_out(self):
        self.process.stdout = without_gloo(self.process.stdout)
        super()._read_out()

    def workers(self):
        """The processes that train, in the order of their start."""
        return [process.pid for process in self.tree() if _is_worker(process)]


def run(lesson, *args, limit=LIMIT, env=(), **options):
    """Run `lesson` to its end: a `Process` whose `.status` is the exit status.

    A restart that is to get as far as the first attempt needs `env=OWN_STORE`.
    """
    with Process(lesson, *args, env=SHARED | dict(env), **options) as process:
        process.status = process.wait(limit)
    return process


def epochs(lines):
    """The epochs (from 1) whose loss was printed, in order."""
    return [int(found[1]) for line in lines if (found := re.match(r"Epoch +(\d+) \| loss", line))]


def losses(lines):
    """`(loss, samples)` of each printed epoch."""
    found = (re.search(r"loss ([\d.]+) over (\d+) samples", line) for line in lines)
    return [(float(match[1]), int(match[2])) for match in found if match]


def check_gone(process):
    """Check that all processes of a command have ended, or end soon."""
    end = time.monotonic() + LIMIT
    while (left := process.alive()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


def alive(pid):
    """Whether the process is running. A zombie has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_worker(process):
    try:
        words, variables = process.cmdline(), process.environ()
    except psutil.Error:  # it has just ended
        return False
    script = "-m" in words or any(".py" in word for word in words)
    return "spawn_main" in " ".join(words) or ("LOCAL_RANK" in variables and script)

"""Is this machine ready for the workshop? One line per thing that must work, in 10 to 20 seconds.

The last two start processes as a check does: limited, watched for a hang, and with none left.
"""

import os
import re
import subprocess
import sys
import tempfile
from shutil import disk_usage, which

from tools.errors import UserError
from tools.processes import psutil, run

from . import scenarios
from .checks import OF
from .exercises import ROOT, exercises
from .folder import Folder
from .judge import first_failure
from .observe import LIMIT, MOST, Act, Start, observe
from .show import say, wrapped

NEEDED = 2 * MOST  # free bytes
MEMORY = 700_000_000  # bytes that a check needs: tools/bench/results/room.txt
ACTIVATE = "`source .venv/bin/activate`; if there is no .venv yet, first `make run`"
CLONE = "clone the repository again"


class NotReady(UserError):
    """What is wrong, and what to do about it."""

    def __init__(self, wrong, fix):
        super().__init__(wrong)
        self.fix = fix


def ready(folder: Folder) -> int:
    """Print a line per thing, and a verdict; log it in the folder. Returns 0 if all is well."""
    fixes = {}  # by the name of what is wrong
    for name, look in THINGS.items():
        if look in NEED_ALL and fixes.keys() & {"scripts", "Python", "torch", "torchrun"}:
            say(f"  · {name}: not tried", "dim")
            continue
        try:
            say(f"  ✓ {name}: {look(folder)}", "green")
        except (UserError, OSError) as error:
            fixes[name] = getattr(error, "fix", "show this line to the instructor")
            say(f"  ✗ {name}: {error}", "red")
            say(wrapped(f"Fix: {fixes[name]}.", "      "))
    if "folder" not in fixes:
        folder.log(None, "ready", wrong=list(fixes))
    if fixes:
        first, fix = next(iter(fixes.items()))
        say(f"\nnot ready: {', '.join(fixes)}. To fix {first}: {fix}. Then try again.", "red")
        return 1
    say("\nready", "green")
    return 0


def _scripts(folder):
    """Whether the scripts are those of the clone. Starts and solutions are computed from them."""
    git = ["git", "diff", "--name-only", "HEAD", "--", ":(glob)*.py", "lessons.toml"]
    compared = False
    if (ROOT / ".git").exists() and which("git"):
        ran = run(git, LIMIT, cwd=ROOT)
        compared = ran.status == 0  # git refuses the clone of another user
        if compared and ran.lines:
            raise NotReady(
                f"{', '.join(ran.lines)} changed since the clone",
                f"`git checkout {' '.join(ran.lines)}` undoes your changes; edit the scripts in "
                f"{folder.path} only",
            )
    try:
        number = len(exercises())
    except (UserError, OSError) as error:
        raise NotReady(str(error), CLONE) from None
    return f"{'unchanged' if compared else 'not compared by git'}, with {number} exercises"


def _folder(folder):
    """Whether it can be written, and a check's copies too."""
    free = {}
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        for place in (folder.path, tempfile.gettempdir()):
            tempfile.TemporaryFile(dir=place).close()
            free[disk_usage(place).free] = place
    except OSError as error:
        raise NotReady(
            f"{folder.path} cannot be written ({error.strerror})",
            "name another folder, as in `export WORKSHOP_DIR=$HOME/my-workshop`",
        ) from None
    if min(free) < NEEDED:
        raise NotReady(
            f"{min(free) / 1e6:.0f} MB free in {free[min(free)]}, but a check needs "
            f"{NEEDED / 1e6:.0f}",
            "delete files there, or name another folder in WORKSHOP_DIR or TMPDIR",
        )
    return f"{folder.path} can be written, {min(free) / 1e9:.1f} GB free"


def _machine(folder):
    cores = len(os.sched_getaffinity(0)) if psutil.LINUX else os.cpu_count()
    memory = psutil.virtual_memory().available
    text = f"{memory / 1e9:.1f} GB of memory available"
    if memory < MEMORY:
        raise NotReady(f"{text}, but a check needs {MEMORY / 1e9:.1f}", "close other programs")
    return f"{cores} core{'s' * (cores != 1)}, {text}"


def _packages(folder):
    """Whether this Python has what `make` installs."""
    told = f"{sys.version.split()[0]}, {sys.executable}"
    try:
        from tools.bootstrap import PROJECT, has
    except FileNotFoundError:
        return f"{told}, packages not compared, because there is no pyproject.toml"
    if missing := [one for one in PROJECT["dependencies"] if not has(one)]:
        raise NotReady(f"{sys.executable} lacks {', '.join(missing)}", ACTIVATE)
    return f"{told}, with {', '.join(PROJECT['dependencies'])}"


def _torch(folder):
    code = "import torch; print(torch.__version__, torch.cuda.device_count())"
    ran = run([sys.executable, "-c", code], LIMIT, stderr=subprocess.PIPE)
    if ran.status:
        last = (ran.err.strip() or f"status {ran.status}").splitlines()[-1]
        fix = "`unset PYTHONPATH`" if os.environ.get("PYTHONPATH") else ACTIVATE
        raise NotReady(f"it cannot be imported ({last})", fix)
    version, gpus = ran.lines[-1].split()
    return f"{version}, {gpus if int(gpus) else 'no'} GPU{'s' * (gpus != '1')} (none is needed)"


def _torchrun(folder):
    """torchrun starts two processes, which form a group and add up their ranks over gloo."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "hello.py"]
    try:
        seen = observe([ROOT / "launch" / "hello.py"], [Act([Start(words)], {})])
    except FileNotFoundError as error:
        raise NotReady(str(error), CLONE if "hello" in str(error) else ACTIVATE) from None
    if seen.first("ended")["status"] != 0:
        output = "\n".join(fact["text"] for fact in seen.all("output"))
        told = re.search(r"(?m)^(?:\w+\.)*\w*Error: .*", output)
        why = told[0] if told else "they wait" if seen.first("hung") else "they give no reason"
        raise NotReady(f"two processes cannot meet: {why}", _way())
    return "two processes met and added up their ranks"


def _way():
    """What may let two processes of this machine meet."""
    if name := os.environ.get("GLOO_SOCKET_IFNAME"):
        return f"`unset GLOO_SOCKET_IFNAME`, which is {name}"
    return (
        "this machine does not reach itself by its own name; leave the VPN, let the firewall allow "
        "Python, or add the line `127.0.0.1 NAME` to /etc/hosts, NAME as `hostname` prints it"
    )


def _check(folder):
    """A check of the unchanged multigpu.py."""
    files = [ROOT / name for name in ("multigpu.py", "utils.py", "guard.py")]
    seen, findings = scenarios.examine("multigpu", "multigpu.py", files, OF["multigpu"])
    if failed := first_failure(findings):
        said = (seen.first("output") or {"text": ""})["text"].strip().splitlines()
        last = f" Its last line: {said[-1]}" if said else ""
        wrong = f"multigpu.py fails: {failed.check.sentence} Seen: {failed.evidence}.{last}"
        raise NotReady(wrong, "show this line to the instructor")
    seconds = seen.first("ended")["t"] - seen.first("act")["t"]
    return f"multigpu.py passes it in {seconds:.0f} s"


NEED_ALL = (_torchrun, _check)
THINGS = {
    "Python": _packages, "scripts": _scripts, "folder": _folder, "machine": _machine,
    "torch": _torch, "torchrun": _torchrun, "check": _check,
}  # fmt: skip

"""Is this machine ready for the workshop? One line per thing that must work, within two minutes.

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
from .acts import LIMIT, MOST, Act, Start, last, observe
from .exercises import ROOT, exercises
from .folder import Folder
from .show import say
from .verdicts import first_failure

NEEDED = 2 * MOST  # free bytes
MEMORY = 900_000_000  # bytes that a check needs: tools/bench/results/room.txt
ACTIVATE = "`source .venv/bin/activate`; if there is no .venv yet, first `make run`"
OTHER = "name another folder, as in `export WORKSHOP_DIR=$HOME/my-workshop` (or TMPDIR)"


def ready(folder: Folder) -> int:
    """Print a line per thing, and a verdict; log it in the folder. Returns 0 if all is well."""
    wrong = []
    for name, (look, doing) in THINGS.items():
        if look in (_torchrun, _check) and {"scripts", "torch", "torchrun"} & {*wrong}:
            say(f"  · {name}: not tried", "dim")
            continue
        if doing:
            say(f"  … {doing}", "dim")
        try:
            say(f"  ✓ {name}: {look(folder)}", "green")
        except (UserError, OSError) as error:
            wrong.append(name)
            say(f"  ✗ {name}: {error}", "red")
    if "folder" not in wrong:
        folder.log(None, "ready", wrong=wrong)
    told = f"not ready: {', '.join(wrong)}. Fix {wrong[0]} first" if wrong else "ready"
    say(f"\n{told}", "red" if wrong else "green")
    return int(bool(wrong))


def _scripts(folder):
    """Whether the scripts are those of the clone. Starts and solutions are computed from them."""
    git = ["git", "diff", "--name-only", "HEAD", "--", ":(glob)*.py", "lessons.toml"]
    how = "not compared by git"
    if (ROOT / ".git").exists() and which("git"):
        ran = run(git, LIMIT, cwd=ROOT)
        if ran.status == 0 and ran.lines:
            undo = f"`git checkout {' '.join(ran.lines)}` undoes your changes"
            changed = f"{', '.join(ran.lines)} changed since the clone"
            raise UserError(f"{changed}: {undo}; edit the scripts in {folder.path} only")
        how = how if ran.status else "unchanged"  # git refuses the clone of another user
    return f"{how}, with {len(exercises())} exercises"


def _folder(folder):
    """Whether it can be written, and a check's copies too."""
    for place in (tempfile.gettempdir(), folder.path):
        try:
            os.makedirs(place, exist_ok=True)
            tempfile.TemporaryFile(dir=place).close()
        except OSError as error:
            raise UserError(f"{place} cannot be written ({error.strerror}): {OTHER}") from None
        free = disk_usage(place).free
        if free < NEEDED:
            needs = f"{free / 1e6:.0f} MB free in {place}, but a check needs {NEEDED / 1e6:.0f}"
            raise UserError(f"{needs}: delete files there, or {OTHER}")
    return f"{folder.path} can be written, {free / 1e9:.1f} GB free"


def _machine(folder):
    cores = len(os.sched_getaffinity(0)) if psutil.LINUX else os.cpu_count()
    memory = psutil.virtual_memory().available
    text = f"{memory / 1e9:.1f} GB of memory available"
    if memory < MEMORY:
        raise UserError(f"{text}, but a check needs {MEMORY / 1e9:.1f}: close other programs")
    return f"{cores} core{'s' * (cores != 1)}, {text}"


def _torch(folder):
    code = "import torch; print(torch.__version__, torch.cuda.device_count())"
    ran = run([sys.executable, "-c", code], LIMIT, stderr=subprocess.PIPE)
    if ran.status:
        last = (ran.err.strip() or f"status {ran.status}").splitlines()[-1]
        fix = "`unset PYTHONPATH`" if os.environ.get("PYTHONPATH") else ACTIVATE
        raise UserError(f"it cannot be imported ({last}): {fix}")
    version, gpus = ran.lines[-1].split()
    shown = f"{gpus if int(gpus) else 'no'} GPU{'s' * (gpus != '1')} (none is needed)"
    return f"{version} in {sys.executable}, {shown}"


def _torchrun(folder):
    """torchrun starts two processes, which form a group and add up their ranks over gloo."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "hello.py"]
    seen = last(observe([ROOT / "launch" / "hello.py"], [Act([Start(words)], {})]))
    if seen.first("ended")["status"] != 0:
        output = "\n".join(fact["text"] for fact in seen.all("output"))
        told = re.search(r"(?m)^(?:\w+\.)*\w*Error: .*", output)
        why = told[0] if told else "they wait" if seen.stuck else "they give no reason"
        fix = "leave the VPN, or let the firewall allow Python, or add `127.0.0.1 NAME` to "
        fix += "/etc/hosts, NAME as `hostname` prints it"
        if name := os.environ.get("GLOO_SOCKET_IFNAME"):
            fix = f"`unset GLOO_SOCKET_IFNAME`, which is {name}"
        raise UserError(f"two processes cannot meet ({why}): {fix}")
    return "two processes met and added up their ranks"


def _check(folder):
    """A check of the unchanged multigpu.py."""
    files = [ROOT / name for name in ("multigpu.py", "utils.py", "guard.py")]
    seen, findings = scenarios.examine(exercises()["multigpu"], files)
    if failed := first_failure(findings):
        wrong = f"multigpu.py fails. {failed.check.sentence} Seen: {failed.evidence}"
        raise UserError(f"{wrong}: show this line to the instructor")
    seconds = seen.first("ended")["t"] - seen.first("act")["t"]
    return f"multigpu.py passes it in {seconds:.0f} s"


THINGS = {  # by name: the function that looks, and what to say before it if that takes long
    "scripts": (_scripts, ""), "folder": (_folder, ""), "machine": (_machine, ""),
    "torch": (_torch, "importing torch"),
    "torchrun": (_torchrun, "starting two processes that meet, with torchrun"),
    "check": (_check, "checking multigpu.py, as `check` does with your script"),
}  # fmt: skip

"""Make .venv and install what it lacks. `make` calls this; it needs only Python.

    python3 tools/bootstrap.py [test] [docs] [ports] [groups] [dev]      # extras of pyproject.toml

If the Python that makes .venv has a new enough torch, .venv shares that Python's packages. If you
made .venv yourself, this keeps it and installs only what it lacks.
"""

import sys

if not (3, 11) <= sys.version_info < (3, 15):  # Python 3.6 can parse this file and say so
    sys.exit(
        f"{sys.executable} is Python {sys.version.split()[0]}, but this needs 3.11 to 3.14:"
        " install one and name it, as in  PYTHON=python3.12 make run"
    )

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tomllib
import venv
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VENV = (ROOT / ".venv").resolve()
PYTHON = VENV / "bin" / "python"
PACKAGES = VENV / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"
MADE = VENV / "made-by-make"  # empty until .venv is complete, then holds its path
PINS = VENV / "pins.txt"  # for pip; left over if pip was killed
BROKEN = f"{VENV} was moved or lost its Python: remove it (rm -rf .venv) and start again"


def main(extras):
    made = MADE.read_text() if MADE.exists() else None
    if made == "" or not any(VENV.glob("*")):
        make_venv()
    elif made not in (None, str(VENV)) or not PYTHON.exists():
        sys.exit(BROKEN)
    os.execv(PYTHON, [str(PYTHON), __file__, "--inside", "series", *extras])


def make_venv():
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    MADE.touch()
    venv.create(VENV, symlinks=True)
    run("ensurepip", "--default-pip")
    if has(PROJECT["dependencies"][0]):  # torch
        print(f"Using the torch of {sys.prefix}", flush=True)
        # Not --system-site-packages, because this Python may be in a virtual environment itself.
        # Without the standard library: what a .pth names, pip hides from what it builds.
        known = sysconfig.get_path("stdlib")
        found = [path for path in sys.path[1:] if "-packages" in path or not path.startswith(known)]
        (PACKAGES / "shared.pth").write_text("\n".join(found))
        torchrun = VENV / "bin" / "torchrun"
        torchrun.write_text('#!/bin/sh\nexec "${0%/*}/python" -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
    MADE.write_text(str(VENV))


def fill_venv(extras):
    """Install what is missing. Runs in .venv's Python, which can see its packages."""
    if Path(sys.prefix).resolve() != VENV:
        sys.exit(BROKEN)
    for info in PACKAGES.glob("*.dist-info") if PINS.exists() else []:
        if not (info / "INSTALLER").exists():  # pip writes it last, so this package is incomplete
            shutil.rmtree(info)
    link_doctor()
    wanted = sum((PROJECT["optional-dependencies"][e] for e in extras), PROJECT["dependencies"])
    missing = {r.split(">=")[0]: r for r in wanted if not has(r)}
    if not missing:
        return
    if not MADE.exists() and any(map(has, missing)):
        sys.exit(f"Your {VENV} has too old a version of one of these: {[*missing.values()]}")
    if not has("pip"):  # uv makes such a .venv
        run("ensurepip", "--default-pip")
    print(f"Installing {', '.join(missing)} (this may take minutes)", flush=True)
    if "torch" in missing and sys.platform == "linux" and not shutil.which("nvidia-smi"):
        print("No NVIDIA GPU, but torch may bring gigabytes of CUDA. For the CPU build, Ctrl-C and")
        print("rm -rf .venv && uv venv && uv pip install --torch-backend=cpu torch", flush=True)
    pins = dict(re.findall("^(.+)(==.+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    PINS.write_text("\n".join(n + pins[n] for n in pins if n not in missing and not has(n)))
    options = ["-q", "--no-user", "--no-input", "--disable-pip-version-check", "-c", PINS]
    wheels = ["--only-binary=:all:", "--no-binary=deepspeed"]  # DeepSpeed has none
    run("pip", "install", *wheels, *options, *(n + pins[n] for n in missing))
    PINS.unlink()


def link_doctor():
    """Make doctor/ importable, and its command. An edit in it takes effect without another make."""
    link, command = PACKAGES / "ddp_doctor.pth", VENV / "bin" / "ddp-doctor"
    if not link.exists() or link.read_text() != f"{ROOT / 'doctor'}\n":
        link.write_text(f"{ROOT / 'doctor'}\n")
    if not command.exists():
        command.write_text('#!/bin/sh\nexec "${0%/*}/python" -m ddp_doctor "$@"\n')
        command.chmod(0o755)


def has(requirement):
    """Whether this Python has 'torch>=2.9', or any 'torch'."""
    name, _, least = requirement.partition(">=")
    with contextlib.suppress(PackageNotFoundError):
        have = version(name).partition("+")[0]  # without "+cpu"
        return [*map(int, re.findall(r"\d+", have))] >= [*map(int, re.findall(r"\d+", least))]
    return False


def run(*module):
    """Run a module in .venv's Python. If it fails, show the last line of its output."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so subprocess.run kills its child
    ran = subprocess.run([PYTHON, "-m", *module], capture_output=True, text=True)
    advice = {
        "ensurepip": f"On Debian and Ubuntu: apt install python3.{sys.version_info[1]}-venv",
        "pip": "Check the network, or try another Python: PYTHON=python3.12 make clean run",
    }
    if ran.returncode:
        reason = (ran.stderr.strip() or f"status {ran.returncode}").splitlines()[-1]
        sys.exit(f"{module[0]} failed ({reason}). {advice[module[0]]}")


if __name__ == "__main__":
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(os.open(ROOT, os.O_RDONLY), fcntl.LOCK_EX)  # wait for another make
        fill_venv(sys.argv[2:]) if sys.argv[1:2] == ["--inside"] else main(sys.argv[1:])
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(f"{error}" or "Interrupted: the same command starts again")

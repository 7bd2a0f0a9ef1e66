"""Make .venv, and install into it what is missing. `make` calls this; it needs only Python.

    python3 tools/bootstrap.py [test] [dev]      # the extras of pyproject.toml

If the Python that runs this file has a torch that is new enough, .venv shares that Python's
packages and gets only what they lack. Otherwise .venv stands alone, in the versions of
constraints.txt. A .venv that you made yourself is used as it is: it gets what it lacks and is
never removed. Nothing outside .venv is changed, but for pip's cache.
"""

# Python 3.6 can read this file, so that an old Python gets as far as saying that it is old.
# What such a Python does not have is imported where it is used.
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
VENV = (ROOT / ".venv").resolve()  # it may be a link to another disk
PYTHON = VENV / "bin" / "python"
MADE_BY = VENV / "made-by"  # written first: this .venv is ours, made by that Python
READY = VENV / "ready"  # written last: what has been installed; without it, .venv is half-made


class Problem(Exception):
    """What went wrong and what to do about it. Shown as one line."""


def main(extras):
    check_python()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # not at once: stop pip, tidy up
    lock()
    ours = MADE_BY.exists()
    yours = not ours and VENV.is_dir() and any(VENV.iterdir())
    inside = Path(sys.prefix).resolve() == VENV
    if ours and inside:  # it is activated; go by the Python that made it
        become(MADE_BY.read_text().splitlines()[0])
    if yours and not inside:
        become(PYTHON)
    if yours:
        fill_yours(requirements(extras))
        return
    try:
        fill_ours(requirements(extras))
    finally:
        if MADE_BY.exists() and not READY.exists():
            clear()
            MADE_BY.unlink()
            if not (ROOT / ".venv").is_symlink():
                VENV.rmdir()


def check_python():
    if os.name == "nt":
        raise Problem("On Windows this runs under WSL only.")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    low, high = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', text).groups()
    if not (3, int(low)) <= sys.version_info[:2] < (3, int(high)):
        raise Problem(
            f"{sys.executable} is Python {version_of_python()}, and this needs 3.{low} to"
            f" 3.{int(high) - 1}: install one and name it, as in  PYTHON=python3.12 make run"
        )


def lock():
    """Let one process at a time change .venv. The lock ends with the process."""
    import fcntl

    root = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(root, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another make to finish with .venv", flush=True)
        fcntl.flock(root, fcntl.LOCK_EX)
    except OSError:
        pass  # a network file system without locks


def become(python):
    """Start again as another Python."""
    if not os.access(python, os.X_OK) or str(python) == sys.executable:
        raise Problem(
            f"{VENV} does not work with {python}: deactivate it, move it away, and start again."
        )
    sys.stdout.flush()
    os.execv(python, [str(python), __file__, *sys.argv[1:]])


def fill_yours(wanted):
    for requirement in wanted:
        name, floor = parse(requirement)
        if version_of(name) and not satisfied(requirement):
            raise Problem(
                f"The {name} in your {VENV} is {version_of(name)}, and this needs {floor} or"
                " newer: update it, or move that .venv away."
            )
    missing = [r for r in wanted if not satisfied(r)]
    if missing:
        if not version_of("pip"):  # uv makes such
            add_pip()
        pip_install(missing)


def fill_ours(wanted):
    maker, *packages = [sys.executable, *describe_python()]
    made_by = MADE_BY.read_text().splitlines() if MADE_BY.exists() else []
    if made_by[1:] != packages or not READY.exists() or not PYTHON.exists():
        make_ours(maker, packages)
    if shared_packages().exists():  # with a torch among them that has been tried
        wanted = [r for r in wanted if parse(r)[0] != "torch" and not satisfied(r)]
    digest = hashlib.sha256(CONSTRAINTS.read_bytes()).hexdigest()
    installed = READY.read_text().splitlines() if READY.exists() else []
    if installed[:1] != [digest]:
        installed = [digest]
    missing = [r for r in wanted if r not in installed]
    if missing:
        pip_install(missing)
    if missing or not READY.exists():
        write(READY, installed + missing)


def make_ours(maker, packages):
    require_module("venv")
    require_module("ensurepip")
    import venv

    VENV.mkdir(exist_ok=True)
    clear()
    write(MADE_BY, [maker, *packages])
    venv.create(VENV, symlinks=True)
    add_pip()  # before anything is shared, so that an activated .venv never has another's pip
    if packages[-1] != "no torch":
        share_packages(maker)


def share_packages(maker):
    """Let .venv see all that this Python sees, if that gives .venv a torch that will do."""
    write(shared_packages(), sys.path[1:])  # [0] is the folder of this file
    torch = run_python("import torch; print(torch.__version__)")
    version = torch.stdout.strip().rpartition("\n")[2]
    floor = next(floor for name, floor in map(parse, requirements([])) if name == "torch")
    if torch.returncode:
        reason = f"cannot be imported ({error_in(torch.stderr)})"
    elif numbers(version) < numbers(floor):
        reason = f"is {version}, older than {floor}"
    else:
        print(f"Using torch {version} of {maker}")
        torchrun = PYTHON.with_name("torchrun")  # the other Python's would start that Python
        torchrun.write_text(f'#!/bin/sh\nexec "{PYTHON}" -m torch.distributed.run "$@"\n')
        torchrun.chmod(0o755)
        return
    print(f"The torch of {maker} {reason}: .venv gets its own")
    shared_packages().unlink()


def add_pip():
    ensurepip = run_python("import ensurepip; ensurepip.bootstrap(default_pip=True)")
    if ensurepip.returncode:
        raise Problem(f"pip cannot be put into {VENV}: {error_in(ensurepip.stderr)}")


def pip_install(missing):
    pins = dict(re.findall(r"^([\w.-]+)(==.*)", CONSTRAINTS.read_text(), re.MULTILINE))
    names = [parse(r)[0] for r in missing]
    missing = [re.sub("[<>=].*", "", r) + pins.get(parse(r)[0], "") for r in missing]
    print(f"Installing {' '.join(missing)} into .venv", flush=True)
    if "torch" in names and sys.platform == "linux" and not shutil.which("nvidia-smi"):
        print(
            "  No NVIDIA GPU found, and this torch may bring gigabytes of CUDA. For the CPU build"
            " press Ctrl-C, install it yourself (the selector on pytorch.org; or  uv venv &&"
            " uv pip install --torch-backend=cpu torch) and start again: that one will be used.",
            flush=True,
        )
    status, log = run_pip(["install", "--only-binary=:all:", "-c", CONSTRAINTS, *missing])
    if status:
        explain(log)


def run_pip(arguments):
    """Run pip; on a terminal, show how far it is. Returns its exit status and what it said."""
    log = []
    with tempfile.TemporaryDirectory(dir=VENV) as folder:  # /tmp may be small
        environment = {**os.environ, "PIP_USER": "0", "TMPDIR": folder}
        with subprocess.Popen(
            [PYTHON, "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
        ) as pip:
            try:
                for line in pip.stdout:
                    log.append(line.strip())
                    show_progress(log[-1])
            except BaseException:
                pip.kill()
                raise
    show_progress("")
    return pip.returncode, log


def explain(log):
    """Say in one line why pip failed."""
    text = "\n".join(log)
    if "connection broken by" in text:
        reasons = re.findall(r"\[\w[^]]*\] [^'\")(]+", text)  # [Errno 111] Connection refused
        raise Problem(
            f"pip cannot reach its package index ({(reasons or ['no answer'])[-1].strip()}):"
            " check the network or the proxy, and start again."
        )
    unmet = re.search(r"(?:No matching distribution found for|Cannot install) (\S+==\S+)", text)
    if unmet:
        import sysconfig

        raise Problem(
            f"pip finds no {unmet.group(1)} for Python {version_of_python()} on"
            f" {sysconfig.get_platform()}: use a Python that there is one for, or one that has"
            " a torch already, as in  PYTHON=python3.12 make run"
        )
    raise Problem("pip failed. " + error_in(text))


def require_module(name):
    import importlib.util

    if importlib.util.find_spec(name) is None:
        version = version_of_python().rpartition(".")[0]
        raise Problem(
            f"{sys.executable} has no {name} module:  apt install python{version}-venv  adds it on"
            " Debian and Ubuntu; or name another Python, as in  PYTHON=python3.12 make run"
        )


def requirements(extras):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["optional-dependencies"][extra] for extra in extras]
    return sum(lists, project["dependencies"])


def parse(requirement):
    """'torch>=2.6' -> ('torch', '2.6')"""
    name, floor = re.match(r"([\w.-]+)[^>]*(?:>=([\d.]+))?", requirement).groups()
    return name, floor or "0"


def numbers(version):
    """'2.13.0+cpu' -> (2, 13, 0)"""
    return tuple(map(int, re.findall(r"\d+", version.split("+")[0])))


def version_of(name):
    """The version of a package that this Python has; None if it has none."""
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def satisfied(requirement):
    name, floor = parse(requirement)
    version = version_of(name)
    return version is not None and numbers(version) >= numbers(floor)


def version_of_python():
    return ".".join(map(str, sys.version_info[:3]))


def describe_python():
    """What a .venv made by this Python depends on: a change of it means another .venv."""
    import importlib.util

    torch = importlib.util.find_spec("torch")
    return [
        str(VENV),
        "Python {}.{} in {}".format(*sys.version_info[:2], sys.prefix),
        f"torch {version_of('torch')} in {torch.origin}" if torch and torch.origin else "no torch",
    ]


def shared_packages():
    """A list of folders that .venv looks into after its own."""
    import sysconfig

    base = {"base": str(VENV), "platbase": str(VENV)}
    return Path(sysconfig.get_path("purelib", "venv", base), "shared.pth")


def run_python(code):
    """Run a line in .venv, where the working directory is not looked into."""
    return subprocess.run(
        [PYTHON, "-P", "-c", code], capture_output=True, text=True, errors="replace"
    )


def error_in(text):
    """The line that matters most: what pip calls an error, else the last."""
    lines = text.strip().splitlines() or ["It said nothing."]
    return ([line for line in lines if line.startswith("ERROR:")] or lines)[-1]


def show_progress(line):
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        print("\r\033[K" + line[: columns - 1], end="", flush=True)


def write(path, lines):
    new = path.with_name(path.name + ".new")
    new.write_text("".join(f"{line}\n" for line in lines))
    new.replace(path)


def clear():
    """Empty .venv, but for the mark that it is ours."""
    for path in VENV.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path != MADE_BY:
            path.unlink()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Problem, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted. The same command begins again.\n")
        sys.exit(130)

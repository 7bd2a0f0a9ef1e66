"""`make` on all sorts of machines: a real venv, a real pip, and empty packages."""

import ast
import os
import shutil
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tools.processes import Process

pip = pytest.importorskip("pip")

ROOT = Path(__file__).resolve().parent.parent
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split("\n")[1:-1])
SCRIPT = "import torch, tqdm, numpy; print('ran', torch.__version__, numpy.__version__)"
RAN = f"ran {PINS['torch']} {PINS['numpy']}\n"
WHEN_OPENED = "import time; sys.addaudithook(lambda e, a: e == 'open' and %r in str(a[0]) and %s)"
ENSUREPIP = f"""# the real one takes seconds
import pathlib, sysconfig
for path in pathlib.Path({str(Path(pip.__file__).parent.parent)!r}).glob("pip*"):
    pathlib.Path(sysconfig.get_path("purelib"), path.name).symlink_to(path)
"""


def package(name, version):
    """The files of an empty package. It requires torch, which tempts pip to replace a torch."""
    module, needs = name.replace("-", "_"), "" if name == "torch" else "Requires-Dist: torch\n"
    info = f"{module}-{version}.dist-info"
    return {
        f"{module}/__init__.py": f"__version__ = {version!r}",
        f"{module}/__main__.py": "print('the tests run')",
        f"{module}/distributed/run.py": "import sys; print('torchrun of', sys.prefix)",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    (folder / "cpu").mkdir()
    for name, version in [*PINS.items(), ("torch", PINS["torch"] + "+cpu")]:
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(folder / ("cpu" if "+" in version else ".") / file, "w") as wheel:
            for path, text in package(name, version).items():
                wheel.writestr(path, text)
    return folder


def environment(folder, **packages):
    """A virtual environment without pip, as uv makes it."""
    venv.create(folder, symlinks=True, clear=True)
    (site,) = folder.glob("lib/python3.*/site-packages")
    for name, version in packages.items():
        for path, text in package(name, version).items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)


def files(folder):
    found = [p for p in folder.rglob("*") if not p.is_dir() and p.suffix != ".pyc"]
    return {path: path.lstat().st_mtime_ns for path in found}


class Machine:
    """A clone of the project, and a Python that is in a virtual environment itself."""

    def __init__(self, folder, wheels):
        self.clone, self.python, tricks = folder / "a clone", folder / "python", folder / "tricks"
        self.venv = self.clone / ".venv"
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/bootstrap.py"):
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        (self.clone / "multigpu.py").write_text(SCRIPT)
        tricks.mkdir()
        (tricks / "sitecustomize.py").write_text("import os, sys; exec(os.getenv('TRICK', ''))")
        (tricks / "ensurepip.py").write_text(ENSUREPIP)
        environment(self.python)
        self.env = {"PATH": f"{self.python}/bin:{os.environ['PATH']}", "PYTHONPATH": str(tricks)}
        self.env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_RETRIES": "0"}
        self.env |= {"PIP_FIND_LINKS": str(wheels), "PIP_USER": "1"}  # as some clusters have it
        self.env |= {"PIP_REQUIRE_VIRTUALENV": "1"}  # spare the real Python, even if .venv is wrong

    def run(self, *words, status=0, **env):
        """Run a command that must end with `status` and leave nothing running."""
        with Process(
            words, self.clone, self.env | env, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # & has it ignored
        ) as ran:  # fmt: skip
            assert ran.wait(120) == status and "Traceback" not in ran.err, (words, env, ran.tail)
            assert not ran.alive()
        return ran

    def make(self, *targets, **env):
        ran = self.run("make", "-s", *targets, **env)
        assert ran.err == ""
        return ran.out

    def refusal(self, **env):
        """The one line that a failing `make run` prints."""
        line, of_make = self.run("make", "run", status=2, **env).err.splitlines()
        assert of_make.startswith("make: ***")
        return line


@pytest.fixture
def machine(tmp_path, wheels):
    return Machine(tmp_path, wheels)


def test_pins_are_installed_once_and_extras_add_up(machine):
    out = machine.run("sh", "-c", "make -s run & make -s run; wait").out  # one waits
    assert out.count(RAN) == 2 and out.count("Installing torch, psutil, numpy, tyro, tqdm (") == 1
    assert ("of CUDA" in out) == (sys.platform == "linux" and not shutil.which("nvidia-smi"))
    assert "Installing pytest, pytest-xdist," in machine.make("test")
    before = files(machine.venv)
    assert machine.make("test", "run") == f"the tests run\n{RAN}"
    assert machine.make("run", PATH=f"{machine.venv}/bin:{machine.env['PATH']}") == RAN  # activated
    assert files(machine.venv) == before
    machine.clone = machine.clone.rename(machine.clone.with_name("moved"))
    assert "was moved or lost its Python: remove it (rm -rf" in machine.refusal()
    machine.make("clean")
    assert not (machine.clone / ".venv").exists()


def test_ended_at_any_moment(machine, wheels):
    kill, interrupt = "os.killpg(0, 9)", "os.killpg(0, 2)"
    terminate = "(os.kill(os.getpgrp(), 15), time.sleep(99))"  # make alone, while pip works
    for moment, action, status in [
        ("made-by-make", kill, -9),
        ("bin/activate", kill, -9),
        ("pins.txt", kill, -9),
        (f"tqdm-{PINS['tqdm']}.dist-info/INSTALLER", kill, -9),
        ("numpy/__init__", interrupt, -2),
        ("numpy/__init__", terminate, -15),
    ]:
        trick = WHEN_OPENED % (moment, action)
        machine.run("make", "run", status=status, TRICK=trick)  # pip has ended too
        if "tqdm" in moment:  # pip writes it last, but others may be missing too
            shutil.rmtree(*machine.venv.glob("lib/*/*/tqdm"))
    assert machine.make("run").endswith(RAN)
    out = machine.make("clean", "run", PIP_FIND_LINKS=f"{wheels} {wheels}/cpu")
    assert out.endswith(f"ran {PINS['torch']}+cpu {PINS['numpy']}\n")  # pip prefers it, as hinted


def test_what_is_wrong_and_what_to_do(machine):
    ast.parse((ROOT / "tools" / "bootstrap.py").read_text(), feature_version=(3, 6))
    assert 'requires-python = ">=3.11,<3.15"' in (ROOT / "pyproject.toml").read_text()
    for version in [(3, 10, 13), (3, 15, 0)]:
        line = machine.refusal(TRICK=f"sys.version_info = {version}")
        assert "but this needs 3.11 to 3.14" in line and "PYTHON=python3.12 make run" in line
    assert "No python9 here" in machine.refusal(PYTHON="python9")
    assert "apt install python3." in machine.refusal(TRICK="sys.modules['ensurepip'] = None")
    (machine.venv / "bin" / "python").unlink()  # as if half made by a Python since removed
    (machine.venv / "bin" / "python").symlink_to("/nowhere")
    nowhere = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_FIND_LINKS": ""}
    line = machine.refusal(**nowhere)
    assert "(ERROR: No matching distribution found for torch==" in line
    assert "Check the network" in line and machine.make("run").endswith(RAN)


def test_a_torch_that_is_there_is_used(machine):
    environment(machine.python, torch="2.7.1")
    out = machine.make("run", "clean")  # it is too old
    assert "Using" not in out and out.endswith(RAN)
    environment(machine.python, torch="2.99.0+cu1", numpy="1.99")
    before = files(machine.python)
    out = machine.make("test", "run")
    assert f"Using the torch of {machine.python}\nInstalling psutil, tyro, tqdm, pytest," in out
    assert out.endswith("ran 2.99.0+cu1 1.99\n") and files(machine.python) == before
    assert machine.run(machine.venv / "bin" / "torchrun").out == f"torchrun of {machine.venv}\n"
    (shared,) = machine.venv.rglob("shared.pth")  # pip would hide its folders from what it builds
    assert not {path for path in shared.read_text().splitlines() if Path(path, "json").exists()}


def test_your_own_venv_is_used_and_kept(machine):
    environment(machine.venv, torch="2.8.0")
    assert "too old a version of one of these: ['torch>=2.9'," in machine.refusal()
    environment(machine.venv, torch="2.99.0")
    assert machine.make("run").endswith(f"ran 2.99.0 {PINS['numpy']}\n")
    before = files(machine.venv)
    machine.make("run", "clean")
    assert files(machine.venv) == before
    (machine.venv / "pyvenv.cfg").unlink()  # now its Python is the system's
    assert "lost its Python: remove it" in machine.refusal()

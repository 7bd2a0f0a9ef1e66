"""`make` on all sorts of machines: real processes, a real venv and a real pip, but packages that
hold little more than their version. Nothing is downloaded.
"""

import ast
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PINS = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().split() if "==" in line
)
STUB = """
import sys, numpy, torch
print("torch", torch.__version__, "numpy", numpy.__version__, "python", sys.executable)
print("from", torch.__file__)
"""
OTHERS = " ".join(f"{name}=={PINS[name]}" for name in ("tyro", "tqdm"))
PACKAGES = {
    "torch": {"torch/distributed/run.py": "import sys; print('torchrun of', sys.executable)"},
    "pytest": {"pytest/__main__.py": "print('the tests run')"},
}


def package(name, version, source=""):
    """The files of a package, installed or in a wheel."""
    name = name.replace("-", "_")  # as file names of packages have it
    info = f"{name}-{version}.dist-info"
    return {
        f"{name}/__init__.py": f"__version__ = {version!r}\n{source}",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        **PACKAGES.get(name, {}),
    }


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A folder with a wheel of every pin, and of one newer torch."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in [*PINS.items(), ("torch", "99.0")]:
        file = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(folder / file, "w") as wheel:
            for path, text in package(name, version).items():
                wheel.writestr(path, text)
    return folder


@pytest.fixture(scope="module")
def quick_ensurepip(tmp_path_factory):
    """A folder with an ensurepip that lends the pip of this Python; the real one takes seconds."""
    folder = tmp_path_factory.mktemp("ensurepip")
    site = Path(pytest.importorskip("pip").__file__).parent.parent
    (folder / "ensurepip.py").write_text(f"""
import pathlib, sysconfig
def bootstrap(default_pip):
    for path in pathlib.Path({str(site)!r}).glob("pip*"):
        pathlib.Path(sysconfig.get_path("purelib"), path.name).symlink_to(path)
""")
    return folder


class Machine:
    """A clone of the project, and the Python that `make` finds there."""

    def __init__(self, folder, wheels, quick_ensurepip):
        self.clone = folder / "a clone"
        self.python = folder / "python3" / "bin" / "python3"
        self.pip_log = folder / "pip.log"
        (self.clone / "tools").mkdir(parents=True)
        (folder / "tmp").mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools/bootstrap.py"):
            shutil.copy(ROOT / name, self.clone / name)
        (self.clone / "multigpu.py").write_text(STUB)
        venv.create(folder / "python3", symlinks=True)
        self.env = {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(wheels),
            "PIP_LOG": str(self.pip_log),
            "PIP_USER": "1",  # as some clusters have it: of no use in a venv
            "PYTHONPATH": str(quick_ensurepip),
        }

    @property
    def venv(self):
        return self.clone / ".venv"

    def start(self, *words, **env):
        return subprocess.Popen(
            words,
            cwd=self.clone,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell lets what it runs in the background, as in `make test &`, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def run(self, *words, **env):
        process = self.start(*words, **env)
        try:
            out, err = process.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def make(self, target, **env):
        """Run a target that must succeed. Returns what it printed."""
        result = self.run("make", target, **env)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    def refusal(self, target="run", **env):
        """Run a target that must fail with one line, and leave nothing. Returns the line."""
        before = files(self.clone)
        result = self.run("make", target, **env)
        assert result.returncode == 2, result
        (line,) = [line for line in result.stderr.splitlines() if not line.startswith("make: ")]
        assert files(self.clone) == before
        return line

    def fake_python(self, prelude):
        """Make the Python of this machine another one: it runs a line before all else."""
        real = self.python.with_name("real")
        self.python.rename(real)
        self.python.write_text(
            f'#!/bin/sh\nexec "{real}" -c \'import runpy, sys; {prelude}; sys.argv.pop(0);'
            ' runpy.run_path(sys.argv[0], run_name="__main__")\' "$@"\n'
        )
        self.python.chmod(0o755)

    def install(self, name, version, source="", into=None):
        """Put a package into the Python of this machine, as if it had been there before."""
        (site,) = (into or self.python.parent.parent).glob("lib/python3.*/site-packages")
        for path, text in package(name, version, source).items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
        return site

    def pip_runs(self):
        return self.pip_log.read_text().count("Looking in links") if self.pip_log.exists() else 0


@pytest.fixture
def machine(tmp_path, wheels, quick_ensurepip):
    return Machine(tmp_path, wheels, quick_ensurepip)


def files(folder):
    """Every file below a folder, and when it was last written; but for compiled ones."""
    return {
        path: path.lstat().st_mtime_ns
        for path in folder.rglob("*")
        if not path.is_dir() and path.suffix != ".pyc"
    }


# The Python


def test_python_3_6_can_read_it():
    ast.parse((ROOT / "tools" / "bootstrap.py").read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("version", ["3, 6, 15", "3, 10, 13", "3, 15, 0"])
def test_python_of_a_wrong_version(machine, version):
    machine.fake_python(f"sys.version_info = ({version})")
    line = machine.refusal()
    assert f"is Python {version.replace(', ', '.')}, and this needs 3.11 to 3.14" in line
    assert "PYTHON=python3.12 make run" in line


def test_no_python(machine):
    assert "No python9 here" in machine.refusal(PYTHON="python9")


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_python_without_venv(machine, module):
    machine.fake_python(f'sys.modules["{module}"] = None')
    line = machine.refusal()
    assert f"has no {module} module" in line and "apt install python3." in line


# pip


def test_first_run_installs_the_pins_and_the_second_nothing(machine):
    del machine.env["PYTHONPATH"]  # the real ensurepip
    first = machine.make("run")
    assert f"Installing torch=={PINS['torch']} numpy=={PINS['numpy']} {OTHERS} into .venv" in first
    assert f"torch {PINS['torch']} numpy {PINS['numpy']} python {machine.venv}" in first
    assert machine.pip_runs() == 1

    second = machine.make("run")
    assert "Installing" not in second and f"torch {PINS['torch']}" in second
    assert machine.pip_runs() == 1

    assert "the tests run" in machine.make("test")
    assert "the tests run" in machine.make("test")
    assert machine.pip_runs() == 2

    activated = {"PATH": f"{machine.venv / 'bin'}:{machine.env['PATH']}"}
    before = files(machine.venv)
    machine.make("run", **activated)
    machine.make("test", **activated)
    assert files(machine.venv) == before

    constraints = machine.clone / "constraints.txt"
    constraints.write_text(constraints.read_text().replace(PINS["torch"], "99.0"))
    assert "torch 99.0" in machine.make("run")
    assert machine.pip_runs() == 3

    (machine.clone / "multigpu.pt").touch()
    machine.make("clean")
    assert not machine.venv.exists()
    assert (machine.clone / "multigpu.pt").exists()


def test_no_wheel(machine, tmp_path):
    line = machine.refusal(PIP_FIND_LINKS=str(tmp_path))
    assert f"pip finds no torch=={PINS['torch']} for Python 3." in line


def test_no_network(machine):
    with socket.socket() as nobody:  # bound, but not listening
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        env = {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": url, "PIP_RETRIES": "1"}
        line = machine.refusal(**env)
    assert "cannot reach its package index" in line and "refused" in line


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_interrupted(machine, tmp_path, name):
    with socket.create_server(("127.0.0.1", 0)) as index:  # one that never answers
        index.settimeout(60)
        env = {
            "PIP_NO_INDEX": "0",
            "PIP_INDEX_URL": f"http://127.0.0.1:{index.getsockname()[1]}",
            "PIP_DEFAULT_TIMEOUT": "1000",
        }
        process = machine.start("make", "run", **env)
        try:
            pip, _ = index.accept()
            if name == "SIGTERM":
                process.terminate()  # make alone, and it tells its child
            else:
                os.killpg(process.pid, signal.Signals[name])
            _, err = process.communicate(timeout=60)
            with pip:
                pip.settimeout(60)
                while pip.recv(4096):  # until pip is dead
                    pass
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in err
    assert not list((tmp_path / "tmp").iterdir())
    assert machine.venv.exists() == (name == "SIGKILL")
    if name == "SIGKILL":
        (machine.venv / "lib" / "half-made").touch()
        assert f"torch {PINS['torch']}" in machine.make("run")
        assert not (machine.venv / "lib" / "half-made").exists()


def test_two_at_once(machine):
    both = [machine.start("make", "run") for _ in range(2)]
    try:
        outputs = [process.communicate(timeout=60) for process in both]
    finally:
        for process in both:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for out, err in outputs:
        assert f"torch {PINS['torch']}" in out and err == ""
    assert machine.pip_runs() == 1


def test_a_venv_that_broke_is_made_anew(machine):
    machine.make("run")
    (machine.venv / "bin" / "python").unlink()  # as when its Python was upgraded
    machine.make("run")
    machine.clone = machine.clone.rename(machine.clone.with_name("moved"))
    assert f"python {machine.venv}" in machine.make("run")
    assert str(machine.venv) in (machine.venv / "bin" / "activate").read_text()


def test_venv_is_a_link_to_another_disk(machine, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    machine.venv.symlink_to(disk)
    machine.refusal(PIP_FIND_LINKS="")
    assert not list(disk.glob("*"))
    machine.make("run")
    assert (disk / "bin" / "python").exists()
    machine.make("clean")
    assert not list(disk.glob("*"))


# A torch that is there already


def test_a_torch_that_is_there_is_used(machine):
    site = machine.install("torch", "2.99.0+cpu")
    before = files(site)
    out = machine.make("run")
    assert "Using torch 2.99.0+cpu of" in out
    assert f"from {site}" in out
    assert f"Installing numpy=={PINS['numpy']} {OTHERS} into .venv" in out
    assert f"numpy {PINS['numpy']} python {machine.venv}" in out

    assert "the tests run" in machine.make("test")
    assert f"from {site}" in machine.make("run")
    assert machine.pip_runs() == 2
    torchrun = machine.run(machine.venv / "bin" / "torchrun")
    assert torchrun.stdout == f"torchrun of {machine.venv}/bin/python\n"
    assert files(site) == before

    shutil.rmtree(site / "torch")
    assert f"torch {PINS['torch']} numpy" in machine.make("run")


def test_where_all_is_there_pip_does_not_run(machine):
    machine.install("torch", "2.99.0")
    for name in ("tyro", "tqdm"):
        machine.install(name, PINS[name])
    site = machine.install("numpy", "2.98.0")
    before = files(site)
    assert "torch 2.99.0 numpy 2.98.0" in machine.make("run")
    assert machine.pip_runs() == 0
    assert files(site) == before


@pytest.mark.parametrize(
    "version, source, reason",
    [
        ("2.5.1+cu121", "", "is 2.5.1+cu121, older than"),
        ("2.99.0", "raise OSError('libcuda.so: gone')", "cannot be imported (OSError: libcuda.so"),
    ],
)
def test_a_torch_that_will_not_do(machine, version, source, reason):
    site = machine.install("torch", version, source)
    before = files(site)
    out = machine.make("run")
    assert f"python3 {reason}" in out
    assert f"torch {PINS['torch']} numpy" in out
    assert files(site) == before
    assert "Installing" not in machine.make("run")


# A .venv that is not ours


def test_your_own_venv_is_used_and_kept(machine):
    venv.create(machine.venv, symlinks=True)  # without a pip, as uv makes them
    site = machine.install("torch", "2.99.0", into=machine.venv)
    out = machine.make("run")
    assert f"from {site}" in out
    assert f"Installing numpy=={PINS['numpy']} {OTHERS} into .venv" in out
    assert "the tests run" in machine.make("test")
    assert machine.pip_runs() == 2
    machine.make("test")
    machine.make("run", PATH=f"{machine.venv / 'bin'}:{machine.env['PATH']}")
    assert machine.pip_runs() == 2
    before = files(machine.venv)
    machine.make("clean")
    assert files(machine.venv) == before


def test_your_own_venv_with_an_old_torch(machine):
    venv.create(machine.venv, symlinks=True)
    machine.install("torch", "2.5.1", into=machine.venv)
    assert "is 2.5.1, and this needs" in machine.refusal()


def test_venv_is_a_file(machine):
    machine.venv.touch()
    assert str(machine.venv) in machine.refusal()


def test_your_own_venv_without_a_python(machine):
    machine.venv.mkdir()
    (machine.venv / "notes").touch()
    assert "move it away" in machine.refusal()
    (machine.venv / "bin").mkdir()
    (machine.venv / "bin" / "python").symlink_to(machine.python.resolve())  # in no venv
    assert "move it away" in machine.refusal()

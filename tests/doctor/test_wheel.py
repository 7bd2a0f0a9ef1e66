"""`pip install .` brings the command, and no other name of this project."""

import sys

from tests.processes import ROOT
from tools.processes import environment, run


def test_the_wheel_holds_the_doctor_alone(tmp_path):
    copy = tmp_path / "clone"  # building writes into the folder
    copy.mkdir()
    listed = run(["git", "ls-files", "ddp_doctor", "pyproject.toml"], cwd=ROOT)
    for name in listed.lines:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((ROOT / name).read_bytes())
    there = tmp_path / "there"
    pip = run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", there, copy])
    assert pip.status == 0, pip.tail
    names = {path.name for path in there.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"bin", "ddp_doctor"}
    command = there / "bin" / "ddp-doctor"
    script = tmp_path / "script.py"
    script.write_text("print(2 + 3)")
    env = environment(PYTHONPATH=str(there))
    ran = run([command, "--", "python", script], cwd=tmp_path, env=env)
    assert (ran.status, ran.lines[0]) == (1, "5") and "nothing-trained" in ran.out, ran.tail
    assert (there / "ddp_doctor" / "probe" / "sitecustomize.py").exists()

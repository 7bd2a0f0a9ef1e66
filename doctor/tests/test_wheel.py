"""`pip install ./doctor` brings the command, and no other name."""

import shutil
import sys

from diagnosing import PACKAGE, run


def test_the_wheel_holds_the_doctor_alone(tmp_path):
    copy = tmp_path / "doctor"  # building writes into the folder
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    there = tmp_path / "there"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", there, copy]
    installed = run(pip, tmp_path)
    assert installed.status == 0, installed.tail
    names = {path.name for path in there.iterdir()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"bin", "ddp_doctor"}
    (tmp_path / "script.py").write_text("print(2 + 3)")
    command = [there / "bin" / "ddp-doctor", "--", "python", "script.py"]
    ran = run(command, tmp_path, PYTHONPATH=str(there))
    assert ran.status == 1 and "5\n" in ran.out and "nothing-trained" in ran.out, ran.tail
    told = run([command[0], "explain", "leak"], tmp_path, PYTHONPATH=str(there))
    assert "+    mine = torch.utils.data.Subset(held" in told.out, told.tail
    assert (there / "ddp_doctor" / "probe" / "sitecustomize.py").exists()

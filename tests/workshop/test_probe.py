"""The probe changes nothing of what a script does."""

import os
import subprocess
import sys

from ddp_doctor.observer import PROBE
from tests.faults import same
from tests.processes import ROOT, run
from workshop.acts import PART


def test_it_changes_nothing(tmp_path):
    """With and without the probe, the checkpoints are equal to the last bit."""
    (tmp_path / "facts").mkdir()
    own = PART | {
        "PYTHONPATH": str(PROBE), "DOCTOR_FACTS": str(tmp_path / "facts"),
        "DOCTOR_HOME": str(tmp_path / "with"),
    }  # fmt: skip
    for name, env in (("with", own), ("without", {})):
        (tmp_path / name).mkdir()
        ran = run("multigpu", 3, 2, cwd=tmp_path / name, env=env)
        assert ran.status == 0 and not ran.err, ran.err
    assert same(tmp_path / "with" / "multigpu.pt", tmp_path / "without" / "multigpu.pt")
    assert len(list((tmp_path / "facts").glob("*.jsonl"))) >= 3


def test_a_sitecustomize_that_was_there_before_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    env = {**os.environ, "PYTHONPATH": f"{PROBE}:{tmp_path}"}
    env |= {"DOCTOR_FACTS": str(tmp_path), "DOCTOR_HOME": str(ROOT)}
    code = "import sys; print(sys.modules['sitecustomize'].__file__, sys.path)"
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert ran.stdout.startswith(f"theirs\n{tmp_path}/sitecustomize.py")
    assert str(PROBE) not in ran.stdout and not ran.stderr

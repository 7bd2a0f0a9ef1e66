"""Right scripts of other kinds than correct_trainer.py have no findings."""

import re

import pytest

from diagnosing import diagnose, python
from right_scripts import BEGIN, RIGHT, TORCHRUN, with_ddp
from scripts_of_samples import SAMPLES
from scripts_of_two import PAIR

OF_TWO = PAIR | SAMPLES
SOON = (  # the others in make soak
    "another dataset of the same class",
    "a teacher without gradients, in train mode",
    "a model that learns its sizes by a pass, has a table in a buffer, and is traced",
    "a rank's own part of samples that change at random, and a moving average",
)  # fmt: skip


def some(table):
    return [pytest.param(n, marks=() if n in SOON else pytest.mark.soak) for n in table]


def check_right(seen):
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail
    failed = [why for why in seen.report["not examined"] if re.match(r"_\w+: ", why)]
    assert not failed, failed  # a part of the probe


@pytest.mark.parametrize("name", some(RIGHT))
def test_a_right_script_has_no_findings(tmp_path, name):
    check_right(python(tmp_path, BEGIN + RIGHT[name]))


@pytest.mark.parametrize("name", some(OF_TWO))
def test_a_right_script_of_two_processes_has_no_findings(tmp_path, name):
    (tmp_path / "train.py").write_text(with_ddp(OF_TWO[name]))
    launch = ["python"] if "spawn" in OF_TWO[name] else TORCHRUN
    check_right(diagnose(tmp_path, *launch, "train.py"))


def test_a_library_may_ask_for_torch_before_it_is_imported(tmp_path):
    asks = 'from importlib.util import find_spec\nfind_spec("torch")\n'
    seen = python(tmp_path, asks + BEGIN + "train(DataLoader(data, 8), model, optimizer)\n")
    assert seen.report["header"].startswith("1 rank, 10 optimizer steps"), seen.ran.tail

"""Every script of docs/symptoms, once fixed, shows its remedy and no longer the page's symptom.

`make docs` checks that the broken script shows it: the page's `:expect:` says what it is.
"""

import re

import pytest

from tests.processes import LIMIT, ROOT
from tools.pages import shell

pytestmark = pytest.mark.soak

FOLDER = ROOT / "docs" / "symptoms"
PAGE = (ROOT / "docs" / "pages" / "symptoms.rst").read_text(encoding="utf-8")
RUN = re.compile(r":expect: (.*)\n(?:   :.*\n)*\n.*python docs/symptoms/(\w+)\.py$", re.MULTILINE)
SAYS = {name: expected for expected, name in reversed(RUN.findall(PAGE))}
FIXED = {
    "address_in_use": "second job started$",
    "around_ddp": r"step 2: weight (\S+)\n(?:.*\n)*.*step 2: weight \1$",
    "different_collectives": r"^\[rank1\]: next epoch$",
    "early_optimizer": r"^\[rank0\]: the largest change of a weight is 0\.8$",
    "mixed_tensors": r"^\[rank1\]: averaged$",
    "module_keys": "loaded into a model without DDP$",
    "no_restart": "^the worker runs again$",
    "padded_validation": r"world size 4: validation loss 5\.000 over 9 samples$",
    "random_split": r"trains on 0 of rank 0's 100 test samples$",
    "rank_0_eval": r"^\[rank1\]: epoch 1 done$",
    "rank_0_loss": r"gradient (\S+), loss (\S+) over 8\n.*gradient \1, loss \2 over 8$",
    "same_order": r"^\[rank0\]: epoch 0 (.*)\n(?:.*\n)*\[rank0\]: epoch 2 (?!\1$)",
    "sharded_state": r"^\[rank0\]: saves 20$",
    "shuffle_and_sampler": r"^\[rank0\]: epoch 0: (.*)\n(?:.*\n)*\[rank0\]: epoch 1: (?!\1$)",
    "two_are_not_one": r"1 x .* 32: 8 steps, weight (\S+)\n.*2 x .* 16: 8 steps, weight \1$",
    "uneven_inputs": r"^\[rank0\]: batch 2 done$",
    "unused_parameters": r"^\[rank0\]: step 1 done$",
}


@pytest.mark.parametrize("name", FIXED)
def test_a_remedy(name):
    (ran,) = shell.run([f"python docs/symptoms/{name}.py fixed"], LIMIT)
    assert ran.status == 0, ran.output
    assert re.search(FIXED[name], ran.output, re.MULTILINE), ran.output
    assert not re.search(SAYS[name], ran.output, re.MULTILINE), ran.output


def test_every_script_is_tested_and_shown():
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"two"}  # all import two.py
    assert scripts == set(FIXED) == set(SAYS)

"""Every script of docs/symptoms shows its symptom in plain text, and fixed shows it no more."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.processes import LIMIT, ROOT
from tools.pages import shell

FOLDER = ROOT / "docs" / "symptoms"
PAGE = ROOT / "docs" / "pages" / "symptoms.rst"


class Symptom(NamedTuple):
    says: str  # both are regular expressions, searched in all that was printed
    fixed: str
    status: int = 1


TIMED_OUT = r"Timed out waiting 2000ms for \w+ operation to complete$"
SYMPTOMS = {
    "address_in_use": Symptom(
        r"code: -98, name: EADDRINUSE, message: address already in use$", "second job started$"
    ),
    "around_ddp": Symptom(
        r"step 2: weight (\S+)\n(?:.*\n)*.*step 2: weight (?!\1$)",
        r"step 2: weight (\S+)\n(?:.*\n)*.*step 2: weight \1$",
        status=0,
    ),
    "different_collectives": Symptom(TIMED_OUT, r"^\[rank1\]: next epoch$"),
    "module_keys": Symptom(
        r'Missing key\(s\) in state_dict: "weight", "bias"\. \n'
        r'.*Unexpected key\(s\) in state_dict: "module\.weight", "module\.bias"\. $',
        "loaded into a model without DDP$",
    ),
    "no_restart": Symptom(
        r"errors\.ChildFailedError: \n(?:.*\n)*.*Signal 9 \(SIGKILL\) received by PID \d+$",
        "^the worker runs again$",
    ),
    "padded_validation": Symptom(
        r"world size 4: validation loss 4\.250 over 12 samples$",
        r"world size 4: validation loss 5\.000 over 9 samples$",
        status=0,
    ),
    "random_split": Symptom(
        r"trains on ([6-9]\d|100) of rank 0's 100 test samples$",
        r"trains on 0 of rank 0's 100 test samples$",
        status=0,
    ),
    "rank_0_eval": Symptom(
        r"Received data size doesn't match expected size\. "
        r"Is there a distributed collective mismatch in your code\?",
        r"^\[rank1\]: epoch 1 done$",
    ),
    "rank_0_loss": Symptom(
        r"gradient (\S+), loss (\S+) over 4\n.*gradient \1, loss (?!\2 )\S+ over 4$",
        r"gradient (\S+), loss (\S+) over 8\n.*gradient \1, loss \2 over 8$",
        status=0,
    ),
    "same_order": Symptom(
        r"^\[rank0\]: epoch 0 (.*)\n(?:.*\n)*\[rank0\]: epoch 2 \1$",
        r"^\[rank0\]: epoch 0 (.*)\n(?:.*\n)*\[rank0\]: epoch 2 (?!\1$)",
        status=0,
    ),
    "two_are_not_one": Symptom(
        r"1 x batch size 32: 8 steps, weight (\S+)\n.*2 x .* 32: 4 steps, weight (?!\1$)",
        r"1 x batch size 32: 8 steps, weight (\S+)\n.*2 x .* 16: 8 steps, weight \1$",
        status=0,
    ),
    "uneven_inputs": Symptom(
        rf"^\[rank1\]: epoch done\n(?:.*\n)*.*{TIMED_OUT}", r"^\[rank0\]: batch 2 done$"
    ),
    "unused_parameters": Symptom(
        r"Expected to have finished reduction in the prior iteration before starting a new one\.",
        r"^\[rank0\]: step 1 done$",
    ),
}


def run(name, word=""):
    """`python docs/symptoms/NAME.py` to its end: its status and all that it printed.

    No process of it holds its output any more by then; that it leaves no file is checked here.
    """
    start = f"ls -A > $TMPDIR/before; python docs/symptoms/{name}.py {word}; status=$?"
    (ran,) = shell.run([f"{start}; ls -A | diff $TMPDIR/before - && exit $status"], LIMIT)
    return ran.status, ran.output


@pytest.mark.parametrize("name", SYMPTOMS)
def test_symptom_and_remedy(name):
    case = SYMPTOMS[name]
    with ThreadPoolExecutor(2) as pool:
        (status, output), (well, fixed) = pool.map(run, (name, name), ("", "fixed"))
    assert re.search(case.says, output, re.MULTILINE), output
    assert status == case.status
    assert re.search(case.fixed, fixed, re.MULTILINE), fixed
    assert not re.search(case.says, fixed, re.MULTILINE), fixed
    assert well == 0


def test_every_script_is_tested_and_shown():
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"two"}  # two.py: what they share
    assert scripts == set(SYMPTOMS)
    shown = set(re.findall(r"^ +.*\bpython docs/symptoms/(\w+)\.py$", PAGE.read_text(), re.M))
    assert shown == scripts

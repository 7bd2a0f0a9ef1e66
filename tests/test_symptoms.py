"""Every script of docs/symptoms shows its symptom in plain text, and mended shows it no more."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.mistakes import ALONE
from tests.processes import LIMIT, ROOT
from tests.test_ends import check_gone

FOLDER = ROOT / "docs" / "symptoms"
PAGE = ROOT / "docs" / "pages" / "symptoms.rst"


class Symptom(NamedTuple):
    says: str  # both are regular expressions, searched in all that was printed
    mended: str
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
# What TORCH_DISTRIBUTED_DEBUG adds.
NAMED = {
    "different_collectives": (
        "DETAIL",
        r"Detected mismatch between collectives on ranks\. .*"
        r"Collectives differ in the following aspects: .*Op type: ALLREDUCEvs BROADCAST$",
    ),
    "unused_parameters": (
        "INFO",
        r"Parameters which did not receive grad for rank 0: old_head\.bias, old_head\.weight$",
    ),
}


def run(name, *args, folder, level="OFF"):
    """`python docs/symptoms/NAME.py ARGS` to its end: its status and all that it printed."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FOLDER, folder / "docs" / "symptoms", ignore=ignored)
    environment = {key: value for key, value in os.environ.items() if key not in ALONE}
    temporary = folder / ".tmp"
    temporary.mkdir()
    environment |= {"OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, f"docs/symptoms/{name}.py", *args],
        cwd=folder,
        env=environment | {"TORCH_DISTRIBUTED_DEBUG": level},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=LIMIT)
        check_gone(folder)
    finally:
        with contextlib.suppress(ProcessLookupError):  # as it should be: all have ended
            os.killpg(process.pid, signal.SIGKILL)
    assert sorted(os.listdir(folder)) == [".tmp", "docs"]
    return process.returncode, output


@pytest.mark.parametrize("name", SYMPTOMS)
def test_symptom_and_remedy(name, tmp_path):
    case = SYMPTOMS[name]
    with ThreadPoolExecutor(2) as pool:
        plain = pool.submit(run, name, folder=tmp_path / "plain")
        mended = pool.submit(run, name, "mended", folder=tmp_path / "mended")
    status, output = plain.result()
    assert re.search(case.says, output, re.MULTILINE), output
    assert status == case.status
    status, output = mended.result()
    assert re.search(case.mended, output, re.MULTILINE), output
    assert not re.search(case.says, output, re.MULTILINE), output
    assert status == 0


def test_debug_levels_name_the_culprit(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        runs = {
            name: pool.submit(run, name, folder=tmp_path / name, level=level)
            for name, (level, _) in NAMED.items()
        }
    for name, (_, says) in NAMED.items():
        status, output = runs[name].result()
        assert re.search(says, output, re.MULTILINE), output
        assert status == 1


def test_every_script_is_tested_and_shown():
    scripts = {path.stem for path in FOLDER.glob("*.py")} - {"two"}  # two.py: what they share
    assert scripts == set(SYMPTOMS)
    shown = set(re.findall(r"^ +.*\bpython docs/symptoms/(\w+)\.py$", PAGE.read_text(), re.M))
    assert shown == scripts

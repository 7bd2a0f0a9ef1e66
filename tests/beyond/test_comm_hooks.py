"""A hook sends half of the bytes, or far fewer; in float32 it trains as DDP's own all-reduce."""

import re
import subprocess

import pytest

from tests.beyond.checkpoints import distance, last_save
from tests.faults import same
from tests.processes import LESSONS, ROOT, command, environment
from tools import processes
from tools.series import observe, stages

STAGES = stages.of(LESSONS["comm_hooks"])


def test_in_float32_the_hook_trains_as_ddp_bit_for_bit(trained, tmp_path):
    """The lesson without its conversion: a text replacement in a copy of its package."""
    text, lines = re.subn(r"\n.*bfloat16.*", "", (ROOT / "beyond" / "comm_hooks.py").read_text())
    assert lines == 1
    (tmp_path / "beyond").mkdir()
    (tmp_path / "beyond" / "comm_hooks.py").write_text(text)
    variables, words = command("comm_hooks", 50, 10)
    env = environment(**{**variables, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    with processes.Process(words, tmp_path, env) as process:
        assert process.wait(processes.LIMIT) == 0, process.out
    assert same(tmp_path / "comm_hooks.pt", last_save(trained("multinode")))


def test_in_bfloat16_it_trains_as_ddp_up_to_rounding(trained):
    """After 10 epochs: after 50, even another learning rate has reached the same weights."""
    one, other = (trained(name).saves[0] for name in ("comm_hooks", "multinode"))
    assert 1e-6 < distance(one, other) < 1e-3


def test_in_bfloat16_it_sends_half_of_the_bytes():
    sent = [_bytes(observe.output(stage, observe.ARGS)) for stage in STAGES[1:]]
    assert sent == [{84}, {42}]  # on both ranks


def _bytes(output):
    return {int(number) for number in re.findall(r"of (\d+) bytes by average_hook", output)}


@pytest.fixture(scope="module")
def rows():
    """The table of the lab: `{name: (bytes or None, distance from DDP, loss)}`."""
    words = ["torchrun", "--standalone", "--nproc_per_node=2", "-m", "docs.labs.comm_hooks"]
    env = environment(OMP_NUM_THREADS="1")
    with processes.Process(words, ROOT, env, stderr=subprocess.DEVNULL) as process:
        assert process.wait(processes.LIMIT) == 0, process.out
    found = re.findall(r"^ *(.*?) +\| +(\S+) \| +(\S+) \| (\S+)$", process.out, re.MULTILINE)
    table = {name: (sent, float(far), float(loss)) for name, sent, far, loss in found}
    table["refused"] = re.search(r"^bf16_compress_hook \| (.*)$", process.out, re.MULTILINE)[1]
    return table


def test_in_the_lab_a_hook_in_float32_equals_ddp(rows):
    assert rows["own hook, float32"] == ("22,276", 0, rows["DDP without a hook"][2])


def test_in_the_lab_halves_send_half_and_powersgd_13_times_fewer(rows):
    numbers = {name: row[0] for name, row in rows.items()}
    whole = int(numbers["own hook, float32"].replace(",", ""))
    for name in ("own hook, bfloat16", "fp16_compress_hook"):
        assert int(numbers[name].replace(",", "")) == whole / 2
    for name in ("PowerSGD, rank 1", "without feedback"):
        assert 13 < whole / int(numbers[name].replace(",", "")) < 14


def test_in_the_lab_error_feedback_keeps_powersgd_near_ddp(rows):
    _, far, loss = rows["PowerSGD, rank 1"]
    _, farther, higher = rows["without feedback"]
    expected = rows["DDP without a hook"][2]
    assert 0 < far < farther / 2
    assert abs(loss - expected) < (higher - expected) / 2


def test_bf16_compress_hook_refuses_the_cpu(rows):
    assert "required CUDA" in rows["refused"]

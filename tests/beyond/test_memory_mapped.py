"""The data set is converted once, whole or not at all, and training does not wait for it again."""

import re
import resource
import subprocess
import sys

import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import utils
from beyond.memory_mapped import convert
from tests.beyond.checkpoints import last_save
from tests.faults import same
from tests.mingpt.test_once import said
from tests.processes import LESSONS, LIMIT, ROOT, check_gone
from tools import processes
from tools.series import stages

DATA = "train_data.mmap"

# The clock stands still, except that a sample takes {sample} seconds to read, and a step {step}.
# Each rank appends to a file as often as it reads a sample.
CLOCK = """
import os, time
from torch.optim.optimizer import register_optimizer_step_post_hook
from utils import MyTrainDataset

now = 0.0
time.perf_counter = lambda: now
read = MyTrainDataset.__getitem__

def slow(dataset, index):
    global now
    rank = int(os.environ["RANK"])
    now += {sample}
    with open(f"reads_of_rank_{{rank}}", "a") as file:
        file.write("x")
    return read(dataset, index)

def step(*_):
    global now
    rank = int(os.environ["RANK"])
    now += {step}

MyTrainDataset.__getitem__ = slow
register_optimizer_step_post_hook(step)
"""
SLOW = CLOCK.format(sample=1, step=1)

FAULT = """
import os, signal
from utils import MyTrainDataset

read = MyTrainDataset.__getitem__

def fail(dataset, index):
    if index == 1000:
        {fault}
    return read(dataset, index)

MyTrainDataset.__getitem__ = fail
"""

# Two nodes with one process each. The arguments are their working folders.
NODES = """
import os, platform, sys
from pathlib import Path
import torch, torch.distributed as dist
from beyond import memory_mapped
import utils

rank = int(os.environ["RANK"])
platform.node = lambda: f"node{{rank}}"
os.environ["LOCAL_RANK"] = "0"
os.makedirs({folders}[rank], exist_ok=True)
os.chdir({folders}[rank])
dist.init_process_group("gloo")
data = memory_mapped.load_train_objs()[0][:]
wanted = utils.MyTrainDataset()[:]
sys.stdout.write(f"{{rank}} has all: {{all(map(torch.equal, data, wanted))}}\\n")
dist.barrier()
sys.stdout.write(f"{{rank}} files: {{os.listdir()}}\\n")
dist.barrier()
dist.destroy_process_group()
"""


def train(folder, hooks, stage=2, limit=None):
    """Train for two epochs in two processes that import `hooks`, a module. Returns the process."""
    (folder / "hooks.py").write_text(hooks)
    text = stages.find(LESSONS, f"memory_mapped@{stage}").source.text
    (folder / "script.py").write_text(
        text.replace("import utils\n", "import utils\nimport hooks\n")
    )
    env = processes.environment(NPROC="2", PYTHONPATH=str(ROOT))

    def prelude():
        if limit:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    words = [sys.executable, "script.py", "2", "2"]
    options = {"stderr": subprocess.PIPE, "preexec_fn": prelude}
    with processes.Process(words, folder, env, **options) as process:
        process.status = process.wait(LIMIT)
        check_gone(process)
    return process


def shares(process):
    assert process.status == 0, process.tail
    return re.findall(r"^Epoch +(\d+) \| computing (\S+) of", process.out, re.MULTILINE)


def reads(folder):
    """How many samples each rank has read since the last call."""
    found = {file.name: file.stat().st_size for file in folder.glob("reads_of_rank_*")}
    for name in found:
        (folder / name).unlink()
    return found


def test_the_weights_are_those_of_multigpu_bit_for_bit(trained):
    assert same(last_save(trained("memory_mapped")), last_save(trained("multigpu")))


def test_slow_data_are_read_once_by_one_process_and_then_training_does_not_wait(tmp_path):
    low = [("1", "3%"), ("2", "3%")]  # 1 second of 33 per batch of 32
    high = [("1", "100%"), ("2", "100%")]
    before = train(tmp_path, SLOW, stage=1)
    assert shares(before) == low
    assert reads(tmp_path) == {"reads_of_rank_0": 2048, "reads_of_rank_1": 2048}  # in two epochs
    after = train(tmp_path, SLOW)
    assert shares(after) == high
    assert reads(tmp_path) == {"reads_of_rank_0": 2048}
    again = train(tmp_path, SLOW)
    assert shares(again) == high
    assert reads(tmp_path) == {}
    for process, times in ((before, 0), (after, 1), (again, 0)):
        assert process.lines.count(f"Converting 2048 samples to {DATA}") == times


def test_the_share_is_that_of_the_rank_that_waits_longest(tmp_path):
    """Rank 1 waits 32 seconds of 33 for data, and rank 0 waits as long for rank 1."""
    hooks = CLOCK.format(sample="rank", step="33 - 32 * rank")
    assert shares(train(tmp_path, hooks, stage=1)) == [("1", "3%"), ("2", "3%")]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_rank_maps_the_file_instead_of_reading_it(tmp_path):
    hooks = """
import os, sys
from torch.optim.optimizer import register_optimizer_step_pre_hook

def note(*_):
    mapped = "/train_data.mmap" in open("/proc/self/maps").read()
    sys.stdout.write(f"mapped: {mapped}\\n")

register_optimizer_step_pre_hook(note)
"""
    lines = train(tmp_path, hooks).lines
    assert lines.count("mapped: True") == 2 * 2 * 32  # ranks, epochs, steps
    assert "mapped: False" not in lines


@pytest.mark.parametrize("damage", ["a flipped bit", "a missing end", "another program's file"])
def test_a_file_that_is_not_whole_is_made_again(damage, tmp_path, capsys):
    dataset, file = utils.MyTrainDataset(), tmp_path / DATA
    convert(dataset, str(file))
    whole = bytearray(file.read_bytes())
    middle = len(whole) // 2
    damaged = {
        "a flipped bit": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
        "a missing end": whole[:middle],
        "another program's file": b"20 1",
    }
    file.write_bytes(damaged[damage])
    convert(dataset, str(file))
    convert(dataset, str(file))  # whole, so kept
    assert capsys.readouterr().out.count("Converting") == 2
    assert all(map(torch.equal, torch.load(file, mmap=True), dataset[:]))


@pytest.mark.parametrize(
    "fault, limit, says",
    [
        ("raise ValueError('sample 1000 is broken')", None, "ValueError: sample 1000 is broken"),
        ("pass", 100_000, "OSError: [Errno 27] File too large"),  # plays the full disk
        ("os.kill(os.getpid(), signal.SIGKILL)", None, "terminated with signal SIGKILL"),
    ],
    ids=["raises", "full disk", "killed"],
)
def test_a_failing_conversion_ends_all_processes_and_leaves_no_file(fault, limit, says, tmp_path):
    process = train(tmp_path, FAULT.format(fault=fault), limit=limit)
    assert process.status == 1
    assert says in process.err
    assert f"Converting 2048 samples to {DATA}" in process.lines
    names = {file.name for file in tmp_path.iterdir()}
    assert names - {"__pycache__"} == {"hooks.py", "script.py"}


@pytest.mark.parametrize("folders", [["one", "other"], ["shared", "shared"]], ids=" ".join)
def test_each_node_has_the_data_with_a_shared_disk_or_without(folders, tmp_path):
    lines = said(NODES.format(folders=folders), 2, tmp_path)
    converted = f"Converting 2048 samples to {DATA}"
    wanted = [f"{rank} {fact}" for rank in (0, 1) for fact in (f"files: {[DATA]}", "has all: True")]
    assert [line for line in lines if line != converted] == wanted
    assert converted in lines


class Images(Dataset):
    """Samples of two types. The label is no tensor."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.full((3, 4, 4), index, dtype=torch.uint8), 2 * index


def test_batches_of_other_data_sets_keep_their_types_also_in_parts(tmp_path, capsys):
    parts = []
    for start in (0, 40, 80):
        path = str(tmp_path / f"{start}.mmap")
        convert(Subset(Images(), range(start, min(start + 40, 100))), path)
        parts.append(TensorDataset(*torch.load(path, mmap=True)))
    loaders = (DataLoader(data, 8) for data in (Images(), ConcatDataset(parts)))
    for one, other in zip(*loaders, strict=True):
        assert [part.dtype for part in other] == [torch.uint8, torch.int64]
        assert all(map(torch.equal, one, other))

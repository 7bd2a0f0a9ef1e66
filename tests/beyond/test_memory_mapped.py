"""The data set is converted once, whole or not at all, and training does not wait for it again."""

import re
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import utils
from beyond.memory_mapped import convert
from tests.faults import same
from tests.lessons import script, train

DATA = "train_data.mmap"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`run(stage, read, step)`: two epochs of two ranks, on clocks that stand still meanwhile.

    A sample takes `read(rank)` seconds, and a step `step(rank)`. Returns the checkpoint, the shares
    of the time that were printed, how many samples each rank read, and how often data were
    converted.
    """
    monkeypatch.chdir(tmp_path)
    of_one = utils.MyTrainDataset.__getitem__

    def run(stage, read=lambda rank: 1, step=lambda rank: 1):
        clocks, reads, lesson = [0.0, 0.0], [0, 0], script(stage)

        def slow(dataset, index):
            clocks[dist.get_rank()] += read(dist.get_rank())
            reads[dist.get_rank()] += 1
            return of_one(dataset, index)

        class Trainer(lesson.Trainer):
            def _run_batch(self, source, targets):
                clocks[dist.get_rank()] += step(dist.get_rank())
                maps = Path("/proc/self/maps")  # Linux has it
                assert stage[-1] == "1" or not maps.exists() or f"/{DATA}" in maps.read_text()
                return super()._run_batch(source, targets)

        monkeypatch.setattr(utils.MyTrainDataset, "__getitem__", slow)
        clock = types.SimpleNamespace(perf_counter=lambda: clocks[dist.get_rank()])
        lesson.time, lesson.Trainer = clock, Trainer
        monkeypatch.setattr(utils, "time", clock)
        saved = train(lesson, tmp_path / "saves", 2)[0]
        out = capsys.readouterr().out
        shares = re.findall(r"^Epoch +\d \| computing (\S+) of", out, re.MULTILINE)
        return saved, shares, reads, out.count(f"Converting 2048 samples to {DATA}")

    return run


def test_slow_data_are_read_once_by_one_process_and_then_training_does_not_wait(run):
    low = ["3%", "3%"]  # 1 second of 33 per batch of 32
    one, *before = run("memory_mapped@1")
    assert before == [low, [2048, 2048], 0]  # in two epochs
    other, *after = run("memory_mapped@2")
    assert after == [["100%", "100%"], [2048, 0], 1]
    _, *again = run("memory_mapped@2")
    assert again == [["100%", "100%"], [0, 0], 0]
    assert same(one, other)


def test_the_share_is_that_of_the_rank_that_waits_longest(run):
    """Rank 1 waits 32 seconds of 33 for data, and rank 0 waits as long for rank 1."""
    found = run("memory_mapped@1", lambda rank: rank, lambda rank: 33 - 32 * rank)
    assert found[1] == ["3%", "3%"]


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


class Images(Dataset):
    """Samples of two types. The label is no tensor."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return torch.full((3, 4, 4), index, dtype=torch.uint8), 2 * index


def test_batches_of_other_data_sets_keep_their_types_also_in_parts(tmp_path):
    parts = []
    for start in (0, 40, 80):
        path = str(tmp_path / f"{start}.mmap")
        convert(Subset(Images(), range(start, min(start + 40, 100))), path)
        parts.append(TensorDataset(*torch.load(path, mmap=True)))
    loaders = (DataLoader(data, 8) for data in (Images(), ConcatDataset(parts)))
    for one, other in zip(*loaders, strict=True):
        assert [part.dtype for part in other] == [torch.uint8, torch.int64]
        assert all(map(torch.equal, one, other))

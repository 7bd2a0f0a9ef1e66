"""The data set is converted to a whole file, and the log has the share of computing."""

import re
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

import utils
from beyond.memory_mapped import convert
from tests.lessons import script, train


def test_the_share_is_that_of_the_rank_that_waits_longest(tmp_path, monkeypatch, capsys):
    """Rank 1 waits 32 seconds of 33 for data, and rank 0 waits as long for rank 1."""
    lesson, clocks, of_one = script("memory_mapped@1"), [0, 0], utils.MyTrainDataset.__getitem__

    def slow(dataset, index):
        clocks[dist.get_rank()] += dist.get_rank()
        return of_one(dataset, index)

    class Trainer(lesson.Trainer):
        def _run_batch(self, *batch):
            clocks[dist.get_rank()] += 33 - 32 * dist.get_rank()
            return super()._run_batch(*batch)

    monkeypatch.setattr(utils.MyTrainDataset, "__getitem__", slow)
    lesson.time = SimpleNamespace(perf_counter=lambda: clocks[dist.get_rank()])
    lesson.Trainer = Trainer
    monkeypatch.setattr(utils, "time", lesson.time)
    train(lesson, tmp_path, 2)
    assert re.findall(r"computing (\S+) of", capsys.readouterr().out) == ["3%", "3%"]


def test_a_file_that_is_not_whole_is_made_again(tmp_path, capsys):
    dataset, file = utils.MyTrainDataset(), tmp_path / "train_data.mmap"
    convert(dataset, str(file))
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    file.write_bytes(damaged)
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

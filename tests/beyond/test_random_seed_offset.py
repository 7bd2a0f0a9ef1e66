"""Ranks that draw with a seed per rank: no rank repeats a sample, no order comes twice."""

import torch.distributed as dist

import utils
from tests.lessons import train

SIZE, EPOCHS = 4, 3


def test_every_rank_and_epoch_has_its_own_order(tmp_path, monkeypatch):
    read, of_one = [[] for _ in range(SIZE)], utils.MyTrainDataset.__getitem__

    def note(dataset, index):
        read[dist.get_rank()].append(index)
        return of_one(dataset, index)

    monkeypatch.setattr(utils.MyTrainDataset, "__getitem__", note)
    train("random_seed_offset", tmp_path, EPOCHS, size=SIZE)
    share = 2048 // SIZE
    draws = [tuple(one[at : at + share]) for one in read for at in range(0, len(one), share)]
    assert len(draws) == len(set(draws)) == SIZE * EPOCHS
    assert all(len(set(one)) == share for one in draws)

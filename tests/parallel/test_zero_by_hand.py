"""Each stage of ZeRO by hand trains as DDP does, on any number of ranks, and resumes on any."""

import pytest
import torch

from tests.lessons import distance, train

STAGES = ("zero_by_hand@1", "zero_by_hand@2", "zero_by_hand")


def equal(found, ddp):
    momenta = ddp["optimizer"]["state"].values()
    whole = torch.cat([one["momentum_buffer"].flatten() for one in momenta])
    return distance(found, ddp) < 1e-6 and (found["optimizer"] - whole).abs().max() < 1e-5


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("stage", STAGES)
def test_it_trains_as_ddp(stage, size, tmp_path):
    ddp = train("multinode", tmp_path, 3, size=size)[0]
    assert equal(train(stage, tmp_path, 3, size=size)[0], ddp)


@pytest.mark.parametrize("stage", STAGES)
def test_it_resumes_on_another_number_of_ranks(stage, tmp_path):
    ddp = train("multinode", tmp_path, 4)[0]
    half = train(stage, tmp_path, 2)[0]
    assert equal(train(stage, tmp_path, 4, size=4, start={2: half})[0], ddp)

"""The data are the same everywhere, and every lesson's loss reaches their noise."""

import hashlib
import itertools

import pytest
import torch

import utils
from tests.processes import SPINE, losses

pytestmark = pytest.mark.quick


def test_data_are_the_same_on_every_machine():
    data = utils.MyTrainDataset()
    digest = hashlib.sha256(data.features.numpy().tobytes() + data.targets.numpy().tobytes())
    assert data.features.shape == (2048, 20) and data.targets.shape == (2048, 1)
    assert digest.hexdigest() == "f14d85411670a2e38f1e43c0d6de946599fcf33e19b43d563171e414db2c5be2"


def noise_floor():
    """The least mean squared error of any linear model on the data."""
    data = utils.MyTrainDataset()
    features = torch.cat([data.features, torch.ones(len(data), 1)], dim=1)
    fit = torch.linalg.lstsq(features, data.targets).solution
    return (features @ fit - data.targets).square().mean().item()


@pytest.mark.parametrize("lesson", SPINE)
def test_loss_is_global_and_falls_to_the_noise_floor(lesson, trained):
    process = trained(lesson)
    values, samples = zip(*losses(process.lines), strict=True)
    assert set(samples) == {2048}
    # The loss falls at every epoch until it reaches the floor, and stays there.
    assert all(late < early for early, late in itertools.pairwise(values[:10]))
    assert values[0] > 20 * noise_floor()
    assert values[-1] == pytest.approx(noise_floor(), rel=0.02)
    assert [torch.load(file)["epochs_run"] for file in process.saves] == [10, 20, 30, 40, 50]

"""The same global batch gives the same weights, however many ranks share it."""

import pytest

from tests.faults import same
from tests.lessons import distance, train
from tests.processes import SPINE, losses

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("lesson", SPINE[1:])
def test_same_weights_and_losses_as_one_device(lesson, size, tmp_path, capsys):
    """Two epochs: after one, an order that never changes would look right."""
    [reference] = train("single_gpu", tmp_path, 2, size=1)
    expected = losses(capsys.readouterr().out.splitlines())
    saved, *others = train(lesson, tmp_path, 2, size=size)
    printed = losses(capsys.readouterr().out.splitlines())
    assert saved["epochs_run"] == 2 and others == [None] * (size - 1)  # rank 0 alone saves
    assert list(saved["model"]) == ["weight", "bias"]  # as without DDP
    assert distance(saved, reference) < 1e-6
    assert distance(saved["optimizer"], reference["optimizer"]) < 1e-5
    assert [count for _, count in printed] == [2048, 2048]
    for (loss, _), (wanted, _) in zip(printed, expected, strict=True):
        assert loss == pytest.approx(wanted, abs=2e-5)


@pytest.mark.parametrize("lesson", SPINE)
def test_threads_train_as_processes_bit_for_bit(lesson, trained, tmp_path):
    """So what tests prove about ranks in threads is true of the documented command."""
    threads = train(lesson, tmp_path, 10, size=1 if lesson == "single_gpu" else 2, batch=32)[0]
    assert same(threads, trained(lesson).saves[0])

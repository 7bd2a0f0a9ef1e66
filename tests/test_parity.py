"""The same global batch gives the same weights, however many processes share it."""

import pytest
import torch

pytestmark = pytest.mark.quick

ONE_DEVICE = ("single_gpu", 10, 10, "--batch_size", 64)
# All have a global batch of 64. Compare the documented trainings after their first save.
OTHERS = {
    "multigpu, 1 process": (("multigpu", 10, 10, "--batch_size", 64), 1),
    "multigpu, 2 processes": (("multigpu",), 2),
    "multigpu, 4 processes": (("multigpu", 10, 10, "--batch_size", 16), 4),
    "multigpu_torchrun, 2 processes": (("multigpu_torchrun",), 2),
    "multinode, 2 processes": (("multinode",), 2),
}


def tensors(part):
    """All tensors of a state dict, in order."""
    if isinstance(part, torch.Tensor):
        return [part]
    if isinstance(part, dict):
        return [tensor for value in part.values() for tensor in tensors(value)]
    return []


def checkpoint(process):
    assert (process.status, process.err) == (0, "")
    return torch.load(process.saves[0])


@pytest.mark.parametrize("name", OTHERS)
def test_same_weights_as_one_device(name, trained):
    words, nproc = OTHERS[name]
    reference = checkpoint(trained(*ONE_DEVICE, nproc=1))
    found = checkpoint(trained(*words, nproc=nproc))
    assert list(found["model"]) == list(reference["model"]) == ["weight", "bias"]
    assert found["epochs_run"] == reference["epochs_run"] == 10
    for part, bound in (("model", 1e-6), ("optimizer", 1e-5)):
        pairs = list(zip(tensors(found[part]), tensors(reference[part]), strict=True))
        assert len(pairs) == 2
        for mine, theirs in pairs:
            assert (mine - theirs).abs().max() < bound

"""The same global batch gives the same weights, however many processes share it."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.processes import run

GLOBAL_BATCH = 64
EPOCHS = 4


def tensors(part):
    """All tensors of a state dict, in order."""
    if isinstance(part, torch.Tensor):
        return [part]
    if isinstance(part, dict):
        return [tensor for value in part.values() for tensor in tensors(value)]
    return []


def train(lesson, nproc, folder):
    folder.mkdir()
    batch = ("--batch_size", GLOBAL_BATCH // nproc)
    process = run(lesson, EPOCHS, 2, *batch, cwd=folder, nproc=nproc)
    assert (process.status, process.err) == (0, "")
    return torch.load(folder / f"{lesson}.pt")


ONE_DEVICE = ("single_gpu", 1)
OTHERS = [
    ("multigpu", 1), ("multigpu", 2), ("multigpu", 4), ("multigpu_torchrun", 2), ("multinode", 2)
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The checkpoint of each; two runs at once, because each begins with one process alone."""

    def checkpoint(case):
        return train(*case, tmp_path_factory.mktemp("parity") / "run")

    with ThreadPoolExecutor(2) as pool:
        cases = [ONE_DEVICE, *OTHERS]
        return dict(zip(cases, pool.map(checkpoint, cases), strict=True))


@pytest.mark.parametrize(("lesson", "nproc"), OTHERS)
def test_same_weights_as_one_device(lesson, nproc, trained):
    reference, found = trained[ONE_DEVICE], trained[lesson, nproc]
    assert list(found["model"]) == list(reference["model"]) == ["weight", "bias"]
    assert found["epochs_run"] == reference["epochs_run"] == EPOCHS
    for part, bound in (("model", 1e-6), ("optimizer", 1e-5)):
        pairs = list(zip(tensors(found[part]), tensors(reference[part]), strict=True))
        assert len(pairs) == 2
        for mine, theirs in pairs:
            assert (mine - theirs).abs().max() < bound

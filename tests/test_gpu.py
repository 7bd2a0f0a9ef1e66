"""On a GPU, the unchanged lessons run one process over NCCL."""

import pytest
import torch

from tests.processes import SPINE, run

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU here: world size 1 over NCCL is not checked"
)


def test_every_lesson_trains_on_the_gpu_and_agrees(tmp_path):
    weights = []
    for lesson in SPINE:
        process = run(lesson, 5, 2, cwd=tmp_path, nproc=1)
        assert (process.status, process.err) == (0, "")
        assert "CPU" not in process.out
        checkpoint = torch.load(tmp_path / f"{lesson}.pt")
        assert all(tensor.is_cuda for tensor in checkpoint["model"].values())
        weights.append(checkpoint["model"]["weight"])
    for other in weights[1:]:
        assert (other - weights[0]).abs().max() < 1e-6

"""Under FSDP and HSDP a GPT makes the steps of one rank. test_files.py resumes it."""

import pytest

from parallel import fsdp, hsdp
from tests.lessons import distance
from tests.mingpt.threads import train


@pytest.mark.parametrize("script, size, nodes, size_of_parts", [
    (fsdp, 2, 1, 64), (fsdp, 2, 1, 1), (fsdp, 4, 1, 64), (fsdp, 8, 1, 64),
    (hsdp, 4, 2, 64), (hsdp, 4, 2, 1), (hsdp, 8, 2, 64), (hsdp, 8, 4, 64), (hsdp, 2, 2, 64),
])  # fmt: skip
def test_it_trains_as_one_rank(script, size, nodes, size_of_parts, sgd, text, tmp_path):
    whole = train(tmp_path / "whole", text, 1, grad_clip=1e6, **sgd)
    own = {"script": script, "nodes": nodes, "micro_batch_size": size_of_parts}
    found = train(tmp_path / "shards", text, size, grad_clip=1e6, **own, **sgd)
    assert distance(found.checkpoint, whole.checkpoint) < 1e-5
    assert sum(found.held) == nodes * whole.held[0]  # a whole model per node

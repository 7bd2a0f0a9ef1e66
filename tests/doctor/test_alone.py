"""Rank 0 alone evaluates through DDP, whose broadcast of buffers waits for all ranks."""

import pytest

from .doctor import diagnose
from .scripts import TORCHRUN, with_ddp

ALONE = """
import time
dist.init_process_group("gloo")
ours = DDP(model)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), ours, optimizer)
if dist.get_rank() == 0:
    time.sleep(1)
    evaluate(DataLoader(data, 8), ours)
"""


def test_a_rank_that_waits_for_others_which_have_ended_is_named(tmp_path):
    (tmp_path / "train.py").write_text(with_ddp(ALONE))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    (finding,) = seen.found["crashed"]
    assert finding["evidence"] == "rank 0 waits for others, which have ended well"
    line = (tmp_path / "train.py").read_text().splitlines()[int(finding["where"].split(":")[1]) - 1]
    assert "F.mse_loss(model(x), y)" in line


@pytest.mark.soak
def test_a_broadcast_of_buffers_against_a_barrier_is_named(tmp_path):
    (tmp_path / "train.py").write_text(with_ddp(ALONE + "dist.barrier()\n"))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py", options=("--limit", "60"))
    assert {"hung", "calls-differ"} <= {*seen.severe}, seen.ran.tail
    assert "rank 0 in the broadcast of DDP's buffers" in seen.found["hung"][0]["evidence"]

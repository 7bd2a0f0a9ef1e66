"""Ranks that end in different ways, and what the exit status does not show."""

import pytest

from diagnosing import diagnose, free_port, python
from right_scripts import BEGIN, TORCHRUN, with_ddp

# Rank 0 alone evaluates through DDP, whose broadcast of buffers waits for all ranks.
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


LOSES_THE_STATUS = """
import subprocess, sys
if "RANK" not in os.environ:
    for rank in "01":
        env = os.environ | {"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        subprocess.Popen([sys.executable, *sys.argv], env=env | MEET)
    raise SystemExit([os.wait() for _ in range(2)] and 0)
dist.init_process_group("gloo")
train(DataLoader(data, 8, sampler=DistributedSampler(data)), DDP(model), optimizer)
exec(compile("raise ValueError('a bad sample')", "a/part.pyx", "exec"))
"""


@pytest.mark.parametrize("trains", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_an_exception_that_a_launcher_hides_is_named(tmp_path, trains):
    meet = {"MASTER_PORT": str(free_port())} if trains else {}
    seen = python(tmp_path, with_ddp(LOSES_THE_STATUS.replace("MEET", str(meet))))
    assert seen.ran.status == 1 and seen.severe[0] == "crashed", seen.ran.tail
    why = "ValueError: a bad sample" if trains else "variable MASTER_PORT expected, but not set"
    assert why in seen.found["crashed"][0]["evidence"]
    assert seen.found["crashed"][0]["where"].startswith("train.py:")  # not the name that it gave


def test_an_exception_in_a_loaders_worker_is_named_where_it_is_raised(tmp_path):
    text = """
class Bad(TensorDataset):
    def __getitem__(self, index):
        raise ValueError(f"no sample {index}")

train(DataLoader(Bad(*data.tensors), 8, num_workers=1), model, optimizer)
"""
    (finding,) = python(tmp_path, BEGIN + text).found["crashed"]
    assert finding["evidence"] == "a process: ValueError: no sample 0"
    assert finding["where"] == f"train.py:{len(BEGIN.splitlines()) + 4}"

"""The kill falls on a step that saves, so rank 0 may save once more without the other rank."""

import pytest

from diagnosing import diagnose
from right_scripts import with_ddp

LAUNCH = """
import os, subprocess, sys

words = [sys.executable, "train.py"]
ranks = [subprocess.Popen(words, env={**os.environ, "RANK": str(rank)}) for rank in range(2)]
sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
EVERY_FEW = """
import glob
meeting = f"file://{os.path.abspath('meeting')}{os.environ['DOCTOR_ACT']}"
dist.init_process_group("gloo", meeting, rank=int(os.environ["RANK"]), world_size=2)
optimizer = torch.optim.Adam(model.parameters(), 0.1)
begin, model = 0, DDP(model)
if files := sorted(glob.glob("*.pt")):
    state = torch.load(files[-1])
    model.module.load_state_dict(state["model"])
    begin = state["steps"]
batches = list(DataLoader(data, 4, sampler=DistributedSampler(data)))
for step in range(begin, len(batches)):
    train(batches[step : step + 1], model, optimizer)
    if (step + 1) % EVERY == 0 and dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "steps": step + 1}, "last.part")
        os.replace("last.part", f"{step + 1:02}.pt")
dist.destroy_process_group()
"""


@pytest.mark.soak
@pytest.mark.parametrize("every", [1, 2, 3])
def test_what_the_other_rank_still_saves_is_what_the_run_resumes_from(tmp_path, every):
    (tmp_path / "train.py").write_text(with_ddp(EVERY_FEW.replace("EVERY", str(every))))
    (tmp_path / "launch.py").write_text(LAUNCH)
    seen = diagnose(tmp_path, "python", "launch.py", options=("--restart",))
    assert seen.severe == ["resume-optimizer"], seen.ran.tail

"""What a run does after a restart: its learning rate, and where it begins."""

import pytest

from diagnosing import python
from right_scripts import BEGIN
from test_restarts import EPOCH, RESTARTED


@pytest.mark.soak
@pytest.mark.parametrize("before", ["", "torch.seed()\n"])  # with it, no two runs are alike
@pytest.mark.parametrize(("exponent", "severe"), [("epoch", 0), ("(epoch - begin)", 1)])
def test_a_rate_that_begins_again_is_named(tmp_path, before, exponent, severe):
    rate = f"optimizer.param_groups[0]['lr'] = 0.1 * 0.5 ** {exponent}"
    text = BEGIN + before + RESTARTED.replace(EPOCH, f"{rate}\n    {EPOCH}")
    seen = python(tmp_path, text, "--restart")
    found = seen.found.get("resume-schedule", [])
    assert seen.ran.status == 0 and len(found) == severe, seen.ran.tail
    if found:
        assert found[0]["evidence"].endswith(
            "has the rate 0.1 in step 41; undisturbed it was 0.00625"
        )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("begin", "severe"), [("epoch", ["resume-data"]), ("0", ["resume-count", "resume-data"])]
)
def test_an_epoch_that_begins_again_is_no_wrong_number_of_steps(tmp_path, begin, severe):
    save = f"""
    def save():
        global steps
        steps += 1
        optimizer.param_groups[0]["lr"] = 0.1 / steps
        if steps % 10 == 4:
            state = {{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}
            torch.save({{**state, "epochs": {begin}}}, "last.part")
            os.replace("last.part", "last.pt")
    steps = 10 * epoch
    torch.manual_seed(epoch)
    """
    text = RESTARTED.replace("epoch % 2 == 1", "False")
    text = text.replace(EPOCH, save + EPOCH.replace("optimizer)", "optimizer, after=save)"))
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert seen.severe == severe, seen.ran.tail
    if severe == ["resume-data"]:
        told = "saved after 4 steps of an epoch, which begins again"
        assert seen.found["resume-data"][0]["evidence"] == told

"""The learning rate after a restart."""

import pytest

from .doctor import python
from .scripts import BEGIN
from .test_restarts import EPOCH, RESTARTED


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

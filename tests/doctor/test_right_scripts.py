"""Right scripts of other kinds than docs/labs/trainer.py have no findings."""

import re

import pytest

from .doctor import diagnose, python
from .scripts import BEGIN, RIGHT, TORCHRUN, with_ddp
from .scripts_of_two import PAIR

SOON = (  # the others in make soak
    "another dataset of the same class", "cross-validation",
    "a teacher without gradients, in train mode",
    "a model that learns its sizes by a pass, has a table in a buffer, and is traced",
    "a rank's own part of samples that change at random, and a moving average",
    "a model that keeps its loss, and a table in its checkpoint",
)  # fmt: skip
RESTARTED = """
begin = 0
if os.path.exists("last.pt"):
    state = torch.load("last.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = state["epochs"]
for epoch in range(begin, 10):
    train(DataLoader(data, 8, shuffle=True), model, optimizer)
    if epoch % 2 == 0:
        torch.save(model.state_dict(), "best.part")
        os.replace("best.part", "best.pt")
    if epoch % 2 == 1:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "epochs": epoch + 1}, "last.part")
        os.replace("last.part", "last.pt")
"""


def some(table):
    return [pytest.param(n, marks=() if n in SOON else pytest.mark.soak) for n in table]


def check_right(seen):
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail
    failed = [why for why in seen.report["not examined"] if re.match(r"_\w+: ", why)]
    assert not failed, failed  # a part of the probe


@pytest.mark.parametrize("name", some(RIGHT))
def test_a_right_script_has_no_findings(tmp_path, name):
    check_right(python(tmp_path, BEGIN + RIGHT[name]))


@pytest.mark.parametrize("name", some(PAIR))
def test_a_right_script_of_two_processes_has_no_findings(tmp_path, name):
    (tmp_path / "train.py").write_text(with_ddp(PAIR[name]))
    launch = ["python"] if "spawn" in PAIR[name] else TORCHRUN
    check_right(diagnose(tmp_path, *launch, "train.py"))


@pytest.mark.soak
def test_the_best_model_is_not_what_an_unseeded_run_resumes_from(tmp_path):
    text = BEGIN.replace("torch.manual_seed(0)", "")
    seen = python(tmp_path, text + RESTARTED, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_weights_that_are_clipped_after_the_step_are_what_is_saved(tmp_path):
    clip = "    train(DataLoader(data, 8), model, optimizer, after=clip)\n"
    text = """
def clip():
    with torch.no_grad():
        [p.clamp_(-0.1, 0.1) for p in model.parameters()]
""" + RESTARTED.replace("    train(DataLoader(data, 8, shuffle=True), model, optimizer)\n", clip)
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail
    text = text.replace('    model.load_state_dict(state["model"])\n', "")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-weights" in seen.severe, seen.ran.tail


@pytest.mark.soak
def test_a_clock_that_ends_the_training_is_no_wrong_number_of_steps(tmp_path):
    text = RESTARTED.replace("range(begin, 10)", "range(begin, 10**6)")
    text = "import time\nended = time.monotonic() + 2\n" + text
    text += "    if time.monotonic() > ended:\n        break\n"
    seen = python(tmp_path, BEGIN.replace("torch.manual_seed(0)", "") + text, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


def test_a_library_may_ask_for_torch_before_it_is_imported(tmp_path):
    asks = 'from importlib.util import find_spec\nfind_spec("torch")\n'
    seen = python(tmp_path, asks + BEGIN + "train(DataLoader(data, 8), model, optimizer)\n")
    assert seen.report["header"].startswith("1 rank, 10 optimizer steps"), seen.ran.tail


@pytest.mark.soak
def test_a_run_that_resumes_through_a_link_is_compared(tmp_path):
    text = RESTARTED.replace('os.replace("last.part", "last.pt")', """
        os.replace("last.part", f"{epoch}.pt")
        if os.path.islink("last.pt"):
            os.unlink("last.pt")
        os.symlink(f"{epoch}.pt", "last.pt")""").replace("epoch + 1}", "epoch}")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail

"""Scripts of other kinds than correct_trainer.py, killed and started again."""

import pytest

from diagnosing import diagnose, python
from right_scripts import BEGIN, TORCHRUN, with_ddp

EPOCH = "train(DataLoader(data, 8, shuffle=True), model, optimizer)"
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


# A pass moves a moving average, which the optimizer has, too; other weights are normalized before.
# A pass of zeros at the beginning is not the run's first batch.
MOVING = """
class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
        self.slow = copy.deepcopy(self.second).requires_grad_(False)

    def forward(self, x):
        features = self.first(x)
        for slow, fast in zip(self.slow.parameters(), self.second.parameters()):
            slow.lerp_(fast.detach(), 0.1)
        return self.second(features) + self.slow(features)

def normalize(_):
    with torch.no_grad():
        model.first.weight.copy_(F.normalize(model.first.weight))

model = Pair()
model(torch.zeros(1, 4))
optimizer = torch.optim.AdamW(model.parameters(), 0.1)
""" + RESTARTED.replace(EPOCH, f"torch.manual_seed(epoch)\n    {EPOCH[:-1]}, normalize)")


@pytest.mark.soak
def test_weights_may_change_between_steps(tmp_path):
    seen = python(tmp_path, BEGIN + MOVING, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_a_moving_average_that_is_not_restored_is_named(tmp_path):
    kept = "if name[:4] != 'slow'}, strict=False)"
    load = f'model.load_state_dict({{name: one for name, one in state["model"].items() {kept}'
    text = MOVING.replace('model.load_state_dict(state["model"])', load)
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-weights" in seen.severe, seen.ran.tail


@pytest.mark.soak
@pytest.mark.parametrize(
    ("then", "made"),
    [("print('begin')", "100 steps"), ("raise SystemExit(0)", "0 steps"),
     ("raise SystemExit(3)", "exit status 3")],
)  # fmt: skip
def test_a_script_that_hides_that_it_cannot_read_its_checkpoint(tmp_path, then, made):
    text = RESTARTED.replace('if os.path.exists("last.pt"):', "try:")
    hides = f"except FileNotFoundError:\n    pass\nexcept Exception:\n    {then}\n"
    text = text.replace("for epoch", f"{hides}for epoch")
    text = text.replace("epoch + 1}", "epoch + 1, 'by': torch.nn.Linear}")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert seen.severe == ["resume-fails"], seen.ran.tail
    evidence = seen.found["resume-fails"][0]["evidence"]
    assert f"{made} after UnpicklingError: Unsupported global" in evidence


@pytest.mark.soak
def test_a_launcher_that_hides_the_status_is_started_again(tmp_path):
    text = RESTARTED.replace("epoch + 1}", "epoch + 1, 'by': torch.nn.Linear}")
    (tmp_path / "train.py").write_text(BEGIN + text)
    (tmp_path / "launch.py").write_text(
        "import subprocess, sys\nsubprocess.run([sys.executable, 'train.py'])\n"
    )
    seen = diagnose(tmp_path, "python", "launch.py", options=("--restart",))
    assert seen.severe == ["resume-fails"], seen.ran.tail


@pytest.mark.soak
@pytest.mark.parametrize("restores", [False, True])
def test_an_optimizer_beside_another_is_compared(tmp_path, restores):
    text = """
model(torch.zeros(2, 4))
other = torch.nn.Linear(1, 1)
second = torch.optim.Adam(other.parameters(), 0.1)

def also():
    second.zero_grad()
    other(torch.ones(2, 1)).mean().backward()
    second.step()
""" + RESTARTED.replace(EPOCH, f"{EPOCH[:-1]}, after=also)")
    text = text.replace("{**state,", '{**state, "other": other.state_dict(),')
    text = text.replace("    begin =", '    other.load_state_dict(state["other"])\n    begin =')
    if restores:  # and then it is the first to step
        load = "second.load_state_dict(state['second'])\n    also()"
        text = text.replace('"other":', '"second": second.state_dict(), "other":')
        text = text.replace("    begin =", f"    {load}\n    begin =")
    seen = python(tmp_path, BEGIN + text, "--restart")
    wrong = {"resume-optimizer", "resume-weights"} & seen.found.keys()
    assert wrong == (set() if restores else {"resume-optimizer"}), seen.ran.tail
    if not restores:
        assert "Adam begins with no state" in seen.found["resume-optimizer"][0]["evidence"]
        assert "resume-data" in seen.severe


@pytest.mark.soak
def test_an_optimizer_that_is_made_anew_has_no_state_to_restore(tmp_path):
    epoch = f"optimizer = torch.optim.Adam(model.parameters())\n    {EPOCH}"
    text = RESTARTED.replace(EPOCH, epoch.replace("shuffle=True", "shuffle=epoch % 2 > 0"))
    seen = python(tmp_path, BEGIN.replace("torch.manual_seed(0)", "") + text, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
@pytest.mark.parametrize(("loads", "severe"), [(True, []), (False, ["resume-weights"])])
def test_a_checkpoint_of_halves_is_compared_with_halves(tmp_path, loads, severe):
    text = RESTARTED.replace('"model": model.', '"model": copy.deepcopy(model).half().')
    if not loads:
        text = text.replace("    model.load_state_dict", "    network().load_state_dict")
    seen = python(tmp_path, BEGIN + text.replace("shuffle=True", "shuffle=False"), "--restart")
    assert [name for name in seen.severe if "weights" in name] == severe, seen.ran.tail


@pytest.mark.soak
def test_the_best_model_is_not_what_an_unseeded_run_resumes_from(tmp_path):
    text = BEGIN.replace("torch.manual_seed(0)", "")
    seen = python(tmp_path, text + RESTARTED, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_the_best_weights_that_are_read_at_the_end_do_not_hide_the_last(tmp_path):
    text = RESTARTED.replace("epoch % 2 == 0", "epoch == 0").replace(", shuffle=True", "")
    text = f"model.insert(1, torch.nn.Dropout(0.5))\n{text}"
    text += "model.load_state_dict(torch.load('best.pt'))\n"
    assert python(tmp_path, BEGIN + text, "--restart").severe == ["resume-differs"]


@pytest.mark.soak
def test_weights_that_are_clipped_after_the_step_are_what_is_saved(tmp_path):
    clip = "train(DataLoader(data, 8), model, optimizer, after=clip)"
    text = """
def clip():
    with torch.no_grad():
        [p.clamp_(-0.1, 0.1) for p in model.parameters()]
""" + RESTARTED.replace(EPOCH, clip)
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


@pytest.mark.soak
def test_a_run_that_resumes_from_a_copy_is_compared(tmp_path):
    text = RESTARTED.replace('os.path.exists("last.pt")', 'os.path.exists("copy.pt")')
    text = text.replace('torch.load("last.pt")', 'torch.load("copy.pt")')
    text = text.replace('os.replace("last.part", "last.pt")', """
        os.replace("last.part", "last.pt")
        import shutil
        shutil.copy("last.pt", "copy.pt")""").replace("epoch + 1}", "epoch}")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail


@pytest.mark.soak
def test_a_run_that_resumes_through_a_link_is_compared(tmp_path):
    text = RESTARTED.replace('os.replace("last.part", "last.pt")', """
        os.replace("last.part", f"{epoch}.pt")
        if os.path.islink("last.pt"):
            os.unlink("last.pt")
        os.symlink(f"{epoch}.pt", "last.pt")""").replace("epoch + 1}", "epoch}")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail


@pytest.mark.parametrize(
    ("begin", "save", "severe"),
    [pytest.param("torch.save(model.state_dict(), 'last.pt')", "True", [],
                  marks=pytest.mark.soak),
     pytest.param("pass", "epoch < 2 and not os.path.exists('last.pt')", [],
                  marks=pytest.mark.soak),
     pytest.param("os.path.exists('last.pt') and load()", "True", ["resume-count"],
                  marks=pytest.mark.soak)],
)  # fmt: skip
def test_the_best_weights_of_a_run_are_read_at_its_end(tmp_path, begin, save, severe):
    """What a run reads that it wrote itself, or after it trained, is not what it resumes from."""
    text = f"""
def load():
    model.load_state_dict(torch.load("last.pt"))

{begin}
for epoch in range(6):
    train(DataLoader(data, 8), model, optimizer)
    if {save}:
        torch.save(model.state_dict(), "last.part")
        os.replace("last.part", "last.pt")
load()
"""
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert [name for name in seen.severe if "resume" in name] == severe, seen.ran.tail


@pytest.mark.soak
def test_a_checkpoint_that_is_read_tensor_by_tensor_is_compared(tmp_path):
    text = """
from safetensors import safe_open
from safetensors.torch import save_file
if os.path.exists("last.safetensors"):
    with safe_open(filename="last.safetensors", framework="pt") as file:
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
for epoch in range(6):
    train(DataLoader(data, 8), model, optimizer)
    save_file(model.state_dict(), "last.part")
    os.replace("last.part", "last.safetensors")
"""
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail


@pytest.mark.soak
def test_ranks_that_were_not_equal_get_the_weights_of_the_one_that_saves(tmp_path):
    epoch = "train(DataLoader(data, 8, sampler=DistributedSampler(data)), model, optimizer)"
    text = RESTARTED.replace(EPOCH, f"{epoch}\n    dist.barrier()").replace(
        "    if epoch", "    if dist.get_rank() == 0 and epoch"
    )
    adam = "optimizer = torch.optim.Adam(model.parameters())\n"
    text = f'dist.init_process_group("gloo")\n{adam}{text}dist.destroy_process_group()\n'
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py", options=("--restart",))
    assert seen.severe[0] == "diverged" and "resume-data" in seen.severe, seen.ran.tail
    assert not {"resume-weights", "resume-optimizer", "resume-differs"} & seen.found.keys()

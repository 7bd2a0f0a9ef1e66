"""A checkpoint that cannot be read or written: the script prints one line and loses nothing."""

import os
import resource
from functools import partial

import pytest
import torch
from torch.optim import SGD, AdamW

from tests.mistakes import ALONE, RESTARTS_ONCE, check_said_once, python
from tests.processes import OWN_STORE, run

AWAY = ": move it away to start afresh, or pass another --checkpoint_path"


MOMENTUM_SGD = partial(SGD, lr=1e-3, momentum=0.9)


def checkpoint(epochs_run=1, features=20, kind=MOMENTUM_SGD):
    """What training would save, after a step."""
    model = torch.nn.Linear(features, 1)
    optimizer = kind(model.parameters())
    model(torch.ones(features)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return {**state, "epochs_run": epochs_run}


def truncated(file):
    torch.save(checkpoint(), file)
    file.write_bytes(file.read_bytes()[:1500])


DAMAGED = "is damaged, or no checkpoint at all"
MISFIT = "does not fit this run ({})"
SIZES = "RuntimeError: size mismatch for weight: copying a param with shape torch.Size([1, 19]) "
SIZES += "from checkpoint, the shape in current model is torch.Size([1, 20])."
BAD = {
    "truncated": (truncated, DAMAGED),
    "a thesis": (lambda file: file.write_text("a thesis, not a checkpoint\n" * 99), DAMAGED),
    "of another model": (lambda file: torch.save(checkpoint(10, 19), file), MISFIT.format(SIZES)),
    # SGD loads it, but would fail in its first step.
    "of another optimizer": (
        lambda file: torch.save(checkpoint(10, kind=AdamW), file),
        MISFIT.format("KeyError: 'momentum'"),
    ),
    "of the official series": (
        lambda file: torch.save({"MODEL_STATE": {}, "EPOCHS_RUN": 10}, file),
        MISFIT.format("KeyError: 'epochs_run'"),
    ),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("kind", BAD)
def test_bad_checkpoint_is_named_and_not_touched(kind, tmp_path):
    lesson, (write, says) = "multinode", BAD[kind]
    write(tmp_path / f"{lesson}.pt")
    before = (tmp_path / f"{lesson}.pt").read_bytes()
    process = python(lesson, 20, 1, cwd=tmp_path, env=ALONE)
    assert process.returncode == 2
    assert process.stderr == f"{lesson}.py: {lesson}.pt {says}{AWAY}\n"
    assert "Epoch" not in process.stdout
    assert os.listdir(tmp_path) == [f"{lesson}.pt"]
    assert (tmp_path / f"{lesson}.pt").read_bytes() == before


@pytest.mark.quick
def test_a_script_that_starts_afresh_replaces_no_file_that_was_named(tmp_path):
    lesson = "multigpu"
    torch.save(checkpoint(), tmp_path / "mine.pt")
    before = (tmp_path / "mine.pt").read_bytes()
    process = python(lesson, 1, 1, "--checkpoint_path", "mine.pt", cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, "")  # before any process started
    assert process.stderr == (
        f"{lesson}.py: mine.pt exists, and this script starts afresh: move it away, or pass "
        "another --checkpoint_path\n"
    )
    assert os.listdir(tmp_path) == ["mine.pt"]
    assert (tmp_path / "mine.pt").read_bytes() == before


@pytest.mark.quick
def test_a_link_of_its_own_name_is_written_through(tmp_path):
    folder, target = tmp_path / "work", tmp_path / "disk" / "target.pt"
    folder.mkdir()
    target.parent.mkdir()
    torch.save(checkpoint(), target)
    (folder / "multinode.pt").symlink_to(target)
    process = python("multinode", 2, 1, cwd=folder, env=ALONE)
    assert (process.returncode, process.stderr) == (0, "")
    assert "Epoch  1 | loss" not in process.stdout  # it resumes
    assert os.readlink(folder / "multinode.pt") == str(target)
    assert os.listdir(folder) == ["multinode.pt"] and os.listdir(target.parent) == ["target.pt"]
    assert torch.load(target)["epochs_run"] == 2


@pytest.mark.quick
def test_a_script_that_resumes_takes_a_file_that_was_named(tmp_path):
    torch.save(checkpoint(epochs_run=3), tmp_path / "mine.pt")
    process = python("multinode", 3, 1, "--checkpoint_path", "mine.pt", cwd=tmp_path, env=ALONE)
    assert (process.returncode, process.stderr) == (0, "")
    assert "mine.pt has run 3 epochs already" in process.stdout


@pytest.mark.parametrize("lesson", ["multigpu", "multigpu_torchrun"])  # by mp.spawn, by torchrun
def test_full_disk_costs_nothing_that_was_saved(lesson, tmp_path):
    """A limit on file sizes plays the full disk."""
    file = tmp_path / f"{lesson}.pt"
    torch.save(checkpoint(), file)
    before, size = file.read_bytes(), file.stat().st_size - 200
    process = run(
        lesson, 4, 2, cwd=tmp_path, launcher=RESTARTS_ONCE, env=OWN_STORE,
        prelude=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip
    assert process.status == (2 if lesson == "multigpu" else 1)
    says = (
        f"cannot save {file} after epoch 2: File too large; what was saved before is intact: "
        "make room, or pass another --checkpoint_path"
    )
    check_said_once(process, lesson, says)
    assert sorted(os.listdir(tmp_path)) == [".tmp", file.name]
    assert file.read_bytes() == before

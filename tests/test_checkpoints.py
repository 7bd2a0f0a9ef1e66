"""A checkpoint that cannot be read or written: the script prints one line and loses nothing."""

import os
import resource

import pytest
import torch

from tests.mistakes import ALONE, RESTARTS_ONCE, alone, check_said_once, python
from tests.processes import SPINE, run

AFRESH, RESUMING = SPINE[:2], SPINE[2:]
AWAY = ": move it away to start afresh, or pass another --checkpoint_path"


def checkpoint(epochs_run=1, features=20):
    model = torch.nn.Linear(features, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return {**state, "epochs_run": epochs_run}


def checkpoint_of_adamw():
    """With a state per parameter, as after a step."""
    model = torch.nn.Linear(20, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(20)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epochs_run": 10}


def spoilt():
    found = checkpoint()
    found["model"]["weight"][0, 3] = float("nan")
    return found


def misshapen():
    found = checkpoint()
    found["optimizer"]["state"] = {0: {"momentum_buffer": torch.zeros(7)}}
    return found


def truncated(file):
    torch.save(checkpoint(), file)
    file.write_bytes(file.read_bytes()[:1500])


DAMAGED = "is damaged, or no checkpoint at all"
FORMAT = "is not in the format of this series (model, optimizer, epochs_run)"
FITS_NOT = "belongs to another model or optimizer ({})"
SIZES = "size mismatch for weight: copying a param with shape torch.Size([1, 19]) from checkpoint, "
SIZES += "the shape in current model is torch.Size([1, 20])."
BAD = {
    "truncated": (truncated, DAMAGED),
    "a thesis": (lambda file: file.write_text("a thesis, not a checkpoint\n" * 99), DAMAGED),
    "of the official series": (
        lambda file: torch.save({"MODEL_STATE": checkpoint()["model"], "EPOCHS_RUN": 10}, file),
        FORMAT,
    ),
    "of another model": (
        lambda file: torch.save(checkpoint(10, 19), file), FITS_NOT.format(SIZES)
    ),
    "of lists": (
        lambda file: torch.save(checkpoint() | {"model": [1, 2]}, file), FORMAT
    ),
    "of -3 epochs": (
        lambda file: torch.save(checkpoint(-3), file), "has epochs_run -3, but must have at least 1"
    ),
    "of half an epoch": (lambda file: torch.save(checkpoint(0.5), file), FORMAT),
    "with a NaN": (lambda file: torch.save(spoilt(), file), "has weights that are not finite"),
    "with a momentum of another shape": (
        lambda file: torch.save(misshapen(), file), "has a momentum_buffer of [7], as no weight"
    ),
    # SGD loads it, but would fail in its first step.
    "of another optimizer": (
        lambda file: torch.save(checkpoint_of_adamw(), file), FITS_NOT.format("'momentum'")
    ),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("lesson", RESUMING)
@pytest.mark.parametrize("kind", BAD)
def test_bad_checkpoint_is_named_and_not_touched(kind, lesson, tmp_path):
    write, says = BAD[kind]
    write(tmp_path / f"{lesson}.pt")
    before = (tmp_path / f"{lesson}.pt").read_bytes()
    process = python(lesson, 20, 1, cwd=tmp_path, env=ALONE)
    assert process.returncode == 2
    assert process.stderr == f"{lesson}.py: {lesson}.pt {says}{AWAY}\n"
    assert "Epoch" not in process.stdout
    assert os.listdir(tmp_path) == [f"{lesson}.pt"]
    assert (tmp_path / f"{lesson}.pt").read_bytes() == before


def test_bad_checkpoint_is_named_once_by_two_workers(tmp_path):
    lesson, (write, says) = "multigpu_torchrun", BAD["of another optimizer"]
    file = tmp_path / f"{lesson}.pt"
    write(file)
    before = file.read_bytes()
    process = run(lesson, 20, 1, cwd=tmp_path, launcher=RESTARTS_ONCE)
    assert process.status == 1 and "Epoch" not in process.out
    assert sum("training on the CPU" in line for line in process.lines) <= 1
    check_said_once(process, lesson, f"{file.name} {says}{AWAY}")
    assert file.read_bytes() == before


@pytest.mark.quick
@pytest.mark.parametrize("lesson", AFRESH)
def test_a_script_that_starts_afresh_replaces_no_file_that_was_named(lesson, tmp_path):
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
@pytest.mark.parametrize("lesson", [*AFRESH, "multinode"])
def test_link_of_its_own_name_is_written_through(lesson, tmp_path):
    """Lessons that start afresh replace its file; the others resume from it."""
    folder, target = tmp_path / "work", tmp_path / "disk" / "target.pt"
    folder.mkdir()
    target.parent.mkdir()
    torch.save(checkpoint(), target)
    if lesson in AFRESH:
        BAD["a thesis"][0](target)
    (folder / f"{lesson}.pt").symlink_to(target)
    process = python(lesson, 2, 1, cwd=folder, env=alone(lesson))
    assert (process.returncode, process.stderr) == (0, "")
    assert ("Epoch  1 | loss" in process.stdout) == (lesson in AFRESH)
    assert os.readlink(folder / f"{lesson}.pt") == str(target)
    assert os.listdir(folder) == [f"{lesson}.pt"] and os.listdir(target.parent) == ["target.pt"]
    assert torch.load(target)["epochs_run"] == 2


@pytest.mark.quick
@pytest.mark.parametrize("lesson", RESUMING)
def test_nothing_left_to_do(lesson, tmp_path):
    """These lessons resume from a named file and do not refuse it."""
    file = tmp_path / "mine.pt"
    torch.save(checkpoint(epochs_run=3), file)
    before = file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino
    words = (3, 1, "--checkpoint_path", file.name)
    process = python(lesson, *words, cwd=tmp_path, env=ALONE)
    assert (process.returncode, process.stderr) == (0, "")
    assert process.stdout.splitlines()[1:] == [
        "mine.pt has run 3 epochs already, and you asked for 3: ask for more, or "
        "start afresh with another --checkpoint_path"
    ]
    assert (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino) == before


@pytest.mark.parametrize("lesson", SPINE[:3])  # multinode saves as its parent does
def test_full_disk_costs_nothing_that_was_saved(lesson, tmp_path):
    """A limit on file sizes plays the full disk."""
    file = tmp_path / f"{lesson}.pt"
    torch.save(checkpoint(), file)  # without momentum yet: smaller than what will be saved
    before, size = file.read_bytes(), file.stat().st_size + 200
    process = run(
        lesson, 4, 2, cwd=tmp_path, launcher=RESTARTS_ONCE,
        prelude=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )  # fmt: skip
    assert process.status == (2 if lesson in AFRESH else 1)
    says = (
        f"cannot save {file} after epoch 2: File too large; what was saved before is intact: "
        "make room, or pass another --checkpoint_path"
    )
    check_said_once(process, lesson, says)
    assert sorted(os.listdir(tmp_path)) == [".tmp", file.name]
    assert file.read_bytes() == before

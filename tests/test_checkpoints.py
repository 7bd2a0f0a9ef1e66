"""Checkpoints that cannot be used, or cannot be written: one line says so, and nothing is lost."""

import os
import re
import resource

import pytest
import torch

from tests.mistakes import RESTARTS_ONCE, alone, check_each, check_said_once, python
from tests.processes import LESSONS, SPINE, run

AWAY = ": move it away to start afresh, or pass another --checkpoint_path"


def checkpoint(epochs_run=1, features=20):
    model = torch.nn.Linear(features, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    return {**state, "epochs_run": epochs_run}


def truncated(file):
    torch.save(checkpoint(), file)
    file.write_bytes(file.read_bytes()[:1500])


DAMAGED = "is damaged, or no checkpoint at all"
FORMAT = "is not in the format of this series (model, optimizer, epochs_run)"
FITS_NOT = "belongs to another model or optimizer"
BAD = {
    "truncated": (SPINE, truncated, DAMAGED),
    # All read it by the same lines: below, one script that starts afresh and one that goes on.
    "foreign": (
        ("single_gpu", "multinode"),
        lambda file: file.write_text("a thesis, not a checkpoint\n" * 99),
        DAMAGED,
    ),
    "of the official series": (
        ("multigpu", "multigpu_torchrun"),
        lambda file: torch.save({"MODEL_STATE": checkpoint()["model"], "EPOCHS_RUN": 10}, file),
        FORMAT,
    ),
    # The first two scripts keep it under another name, as any other checkpoint.
    "of another model": (SPINE[2:], lambda file: torch.save(checkpoint(10, 19), file), FITS_NOT),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_checkpoint_is_named_and_not_touched(kind, tmp_path):
    lessons, write, says = BAD[kind]

    def check(lesson):
        folder = tmp_path / lesson
        folder.mkdir()
        write(folder / f"{lesson}.pt")
        before = (folder / f"{lesson}.pt").read_bytes()
        process = python(lesson, 20, 1, cwd=folder, env=alone(lesson))
        assert process.returncode == 2
        assert process.stderr == f"{lesson}.py: {lesson}.pt {says}{AWAY}\n"
        assert "Epoch" not in process.stdout
        assert os.listdir(folder) == [f"{lesson}.pt"]
        assert (folder / f"{lesson}.pt").read_bytes() == before

    check_each(check, lessons)


def test_bad_checkpoint_is_named_once_by_two_workers(tmp_path):
    truncated(tmp_path / "multinode.pt")
    before = (tmp_path / "multinode.pt").read_bytes()
    process = run("multinode", 20, 1, cwd=tmp_path, launcher=RESTARTS_ONCE)
    assert process.status == 1 and len(process.lines) == 1  # the line about the CPU, also once
    check_said_once(process, "multinode", f"multinode.pt {DAMAGED}{AWAY}")
    assert (tmp_path / "multinode.pt").read_bytes() == before


@pytest.mark.parametrize(("lesson", "nproc"), [("multigpu_torchrun", 2), ("multinode", 1)])
def test_nothing_left_to_do(lesson, nproc, tmp_path):
    file = tmp_path / f"{lesson}.pt"
    torch.save(checkpoint(epochs_run=3), file)
    before = file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino
    process = run(lesson, 1 + nproc, 1, cwd=tmp_path, nproc=nproc)
    assert (process.status, process.err) == (0, "")
    assert process.lines[1:] == [
        f"{lesson}.pt has run 3 epochs already and {1 + nproc} were asked for: ask for more, or "
        "start afresh with another --checkpoint_path"
    ]
    assert (file.read_bytes(), file.stat().st_mtime_ns, file.stat().st_ino) == before


def test_link_is_written_through_and_an_earlier_checkpoint_kept(tmp_path):
    def check(lesson):
        folder, target = tmp_path / lesson, tmp_path / f"disk of {lesson}" / "target.pt"
        folder.mkdir()
        target.parent.mkdir()
        torch.save(checkpoint(), target)
        (folder / f"{lesson}.pt").symlink_to(target)
        kept = {folder / f"{lesson}.1.pt": b"an earlier one", folder / f"{lesson}.3.pt": b"another"}
        for file, content in kept.items():
            file.write_bytes(content)
        if lesson == "single_gpu":  # it starts afresh; the other goes on from what the file holds
            kept[folder / "single_gpu.2.pt"] = target.read_bytes()
        process = python(lesson, 2, 1, cwd=folder, env=alone(lesson))
        assert (process.returncode, process.stderr) == (0, "")
        assert os.readlink(folder / f"{lesson}.pt") == str(target)
        assert os.listdir(target.parent) == ["target.pt"]
        assert torch.load(target)["epochs_run"] == 2
        assert {file: file.read_bytes() for file in folder.glob("*.?.pt")} == kept
        assert ("is kept as single_gpu.2.pt: " in process.stdout) == (lesson == "single_gpu")

    check_each(check, ["single_gpu", "multinode"])


def no_file_above(size):
    """For a process about to start: to it, every disk is full after `size` bytes of a file."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize("lesson", SPINE)
def test_full_disk_costs_nothing_that_was_saved(lesson, tmp_path):
    torchrun = "torchrun" in LESSONS[lesson].run
    file = tmp_path / f"{lesson}.pt"
    torch.save(checkpoint(), file)  # without momentum yet: smaller than what will be saved
    before, full = file.read_bytes(), no_file_above(file.stat().st_size + 200)
    nproc, launcher = 2, RESTARTS_ONCE
    if lesson == "multinode":
        nproc, launcher = 1, ("--standalone", "--max-restarts=0")  # it saves as its parent does
    process = run(lesson, 4, 2, cwd=tmp_path, nproc=nproc, launcher=launcher, prelude=full)
    assert process.status == (1 if torchrun else 2)
    check_said_once(
        process,
        lesson,
        f"cannot save {file} after epoch 2: File too large; what was saved before is intact: "
        "make room, or pass another --checkpoint_path",
    )
    kept = [file.name] if torchrun else [f"{lesson}.1.pt", file.name]
    assert sorted(os.listdir(tmp_path)) == [".tmp", *kept]
    assert all((tmp_path / name).read_bytes() == before for name in kept)
    assert torch.load(file)["epochs_run"] == 1


def test_disk_too_full_to_keep_an_earlier_checkpoint(tmp_path):
    torch.save(checkpoint(), tmp_path / "single_gpu.pt")
    before = (tmp_path / "single_gpu.pt").read_bytes()
    process = run("single_gpu", 1, 1, cwd=tmp_path, prelude=no_file_above(1500))
    assert process.status == 2
    assert re.fullmatch(r"single_gpu.py: .*File too large.*\n", process.err), process.err
    assert process.lines == []
    assert [file.name for file in tmp_path.glob("*.pt")] == ["single_gpu.pt"]
    assert (tmp_path / "single_gpu.pt").read_bytes() == before

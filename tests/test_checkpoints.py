"""A checkpoint that cannot be read or written: the script prints one line and loses nothing."""

import contextlib
import os
import re
import resource
from functools import partial

import pytest
import torch
from torch.optim import SGD, AdamW

import utils
from guard import UserError
from tests.mistakes import ALONE, RESTARTS_ONCE, alone, check_said_once, python
from tests.processes import OWN_STORE, SPINE, run

AFRESH, RESUMING = SPINE[:2], SPINE[2:]
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


def changed(*path, to=None):
    """Write a checkpoint whose part at `path` is `to`, or `to(part)`, or gone."""

    def write(file):
        whole = part = checkpoint()
        for key in path[:-1]:
            part = part[key]
        if to is None:
            del part[path[-1]]
        else:
            part[path[-1]] = to(part[path[-1]]) if callable(to) else to
        torch.save(whole, file)

    return write


def truncated(file):
    torch.save(checkpoint(), file)
    file.write_bytes(file.read_bytes()[:1500])


DAMAGED = "is damaged, or no checkpoint at all"
MISFIT = "does not fit this run ({})"
SIZES = "RuntimeError: size mismatch for weight: copying a param with shape torch.Size([1, 19]) "
SIZES += "from checkpoint, the shape in current model is torch.Size([1, 20])."
NUMBERED = "ValueError: the optimizer's parameters are not numbered"
EMPTY = "ValueError: the optimizer's state is empty"
NO_WEIGHT = "ValueError: momentum_buffer is [(torch.float32, torch.Size({}), torch.strided)], as "
NO_WEIGHT += "no weight"
STATE, GROUPS = ("optimizer", "state"), ("optimizer", "param_groups")
MOMENTUM = (*STATE, 0, "momentum_buffer")
BAD = {
    "truncated": (truncated, DAMAGED),
    "a thesis": (lambda file: file.write_text("a thesis, not a checkpoint\n" * 99), DAMAGED),
    "of another model": (lambda file: torch.save(checkpoint(10, 19), file), MISFIT.format(SIZES)),
    # SGD loads it, but would fail in its first step.
    "of another optimizer": (
        lambda file: torch.save(checkpoint(10, kind=AdamW), file),
        MISFIT.format("KeyError: 'momentum'"),
    ),
    "without a learning rate": (changed(*GROUPS, 0, "lr"), MISFIT.format("KeyError: 'lr'")),
    # These fail in its first step, too.
    "with swapped states": (
        changed(*STATE, to=lambda both: {0: both[1], 1: both[0]}),
        MISFIT.format(
            "RuntimeError: output with shape [1] doesn't match the broadcast shape [1, 20]"
        ),
    ),
    "with a momentum of one number": (
        changed(*MOMENTUM, to=lambda one: one[:, :1].expand(1, 20)),
        MISFIT.format(
            "RuntimeError: unsupported operation: more than one element of the written-to tensor "
            "refers to a single memory location. Please clone() the tensor before [...]"
        ),
    ),
    "with True as weight_decay": (
        changed(*GROUPS, 0, "weight_decay", to=True),
        MISFIT.format("RuntimeError: Boolean alpha only supported for Boolean results."),
    ),
    "with a NaN": (
        changed("model", "weight", to=torch.full((1, 20), torch.nan)),
        MISFIT.format("ValueError: weight is not finite"),
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


# What is wrong with a file that torch.load reads.
JUNK = {
    "the official series": (changed("epochs_run"), "KeyError: 'epochs_run'"),
    "-3 epochs": (changed("epochs_run", to=-3), "ValueError: epochs_run is -3"),
    "half an epoch": (changed("epochs_run", to=0.5), "ValueError: epochs_run is 0.5"),
    "True epochs": (changed("epochs_run", to=True), "ValueError: epochs_run is True"),
    "no model": (changed("model"), "KeyError: 'model'"),
    "a tensor": (
        lambda file: torch.save(torch.ones(3), file), "TypeError: it is no dictionary"
    ),
    "a tensor as optimizer": (
        changed("optimizer", to=lambda _: torch.ones(3)),
        "TypeError: the optimizer's state is no dictionary",
    ),
    "a tensor as option": (
        changed(*GROUPS, 0, "dampening", to=torch.tensor([True])),
        "ValueError: an option of the optimizer is a tensor",
    ),
    "a list as model": (
        changed("model", to=[1, 2]), "AttributeError: 'list' object has no attribute 'values'"
    ),
    "a weight of None": (
        changed("model", "weight", to=lambda _: None),
        "AttributeError: 'NoneType' object has no attribute 'dtype'",
    ),
    "float64": (changed("model", "weight", to=torch.Tensor.double), NO_WEIGHT.format([1, 20])),
    "whole numbers": (changed("model", "bias", to=torch.Tensor.long), NO_WEIGHT.format([1])),
    "a list as state": (
        changed(*STATE, to=[]), "AttributeError: 'list' object has no attribute 'keys'"
    ),
    "no state": (changed(*STATE, to={}), EMPTY),
    "half of a state": (changed(*MOMENTUM), EMPTY),
    "a state of no parameter": (changed(*STATE, "0", to={}), NUMBERED),
    "a momentum of None": (
        changed(*MOMENTUM, to=lambda _: None),
        "AttributeError: 'NoneType' object has no attribute 'dtype'",
    ),
    "an infinite momentum": (
        changed(*MOMENTUM, to=lambda one: one / 0), "ValueError: momentum_buffer is not finite"
    ),
    "a momentum of another shape": (changed(*MOMENTUM, to=torch.zeros(7)), NO_WEIGHT.format([7])),
    "no list of groups": (
        changed(*GROUPS, to=3), "TypeError: 'int' object is not iterable"
    ),
    "no dictionary as group": (
        changed(*GROUPS, 0, to="lr"), "TypeError: string indices must be integers, not 'str'"
    ),
    "a rate of NaN": (changed(*GROUPS, 0, "lr", to=torch.nan), "ValueError: lr is nan"),
    "a complex rate": (
        changed(*GROUPS, 0, "lr", to=torch.tensor(1e-3 + 0j)), "ValueError: lr is complex"
    ),
    "a momentum below 0": (
        changed(*GROUPS, 0, "momentum", to=-0.9), "ValueError: momentum is -0.9"
    ),
    "other numbers": (changed(*GROUPS, 0, "params", to=[1, 0]), NUMBERED),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("kind", JUNK)
def test_junk_is_refused(kind, tmp_path):
    write, says = JUNK[kind]
    write(tmp_path / "junk.pt")
    line = re.escape(f"junk.pt {MISFIT.format(says)}{AWAY}")
    with pytest.raises(UserError, match=f"^{line}$"), contextlib.chdir(tmp_path):
        utils.read_checkpoint("junk.pt")


def test_what_is_stored_once_is_checked_once(tmp_path):
    """Else a small file keeps the check busy for hours."""
    many = [1.0]
    for _ in range(40):
        many = [many, many]
    numbers = torch.ones(1).expand(10**12)
    torch.save({**checkpoint(), "many": many, "numbers": numbers}, tmp_path / "model.pt")
    assert utils.read_checkpoint(tmp_path / "model.pt")["numbers"].numel() == 10**12


def test_an_optimizer_without_a_state_resumes(tmp_path):
    """As plain SGD saves it, and an fp16 run that has skipped all its steps."""
    for kind, others in ((partial(SGD, lr=1e-3), {}), (AdamW, {"scaler": {"scale": 1.0}})):
        saved = {**checkpoint(kind=kind), **others}
        saved["optimizer"]["state"] = {}
        torch.save(saved, tmp_path / "model.pt")
        assert utils.read_checkpoint(tmp_path / "model.pt")["epochs_run"] == 1


def test_bad_checkpoint_is_named_once_by_two_workers(tmp_path):
    lesson, (write, says) = "multigpu_torchrun", BAD["of another optimizer"]
    file = tmp_path / f"{lesson}.pt"
    write(file)
    before = file.read_bytes()
    process = run(lesson, 20, 1, cwd=tmp_path, launcher=RESTARTS_ONCE, env=OWN_STORE)
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
    torch.save(checkpoint(), file)
    before, size = file.read_bytes(), file.stat().st_size - 200
    process = run(
        lesson, 4, 2, cwd=tmp_path, launcher=RESTARTS_ONCE, env=OWN_STORE,
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

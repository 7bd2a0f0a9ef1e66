"""What people will get wrong: one line that says what and what to do about it, and nothing lost."""

import os
import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
import torch

from tests import processes
from tests.processes import LESSONS, LIMIT, ROOT, SPINE, run

# What torchrun tells a process that is alone; port 0 is any free one.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
ALONE |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
FOUR = {**ALONE, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
RESTARTS_ONCE = ("--standalone", "--max-restarts=1")
AWAY = ": move it away to start afresh, or pass another --checkpoint_path"

# Torch says that there is an accelerator; no other part of the script is pretended.
FAKE = """
import runpy, sys, torch
del sys.argv[0]
sys.path.insert(0, {root!r})
torch.version.cuda, torch.version.hip = {cuda!r}, None
torch.accelerator.is_available = lambda: {count} > 0
torch.accelerator.current_accelerator = lambda: torch.device({kind!r})
torch.accelerator.device_count = lambda: {count}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fake(kind="cuda", count=0, cuda=None):
    """A program that runs a lesson with `count` accelerators that are not there.

    Faked are four answers of torch: the number and kind of accelerators, whether there is any, and
    the version of CUDA that it is built for.
    """
    return FAKE.format(root=str(ROOT), kind=kind, count=count, cuda=cuda)


def python(lesson, *args, cwd, env=None, program=None):
    """`python lesson.py ARGS`, to its end; with `program`, by way of `python -c program`."""
    variables = {"OMP_NUM_THREADS": "1", **os.environ}
    for name in ("NPROC", "TORCHELASTIC_RUN_ID", *ALONE):
        variables.pop(name, None)
    words = [sys.executable, *(("-c", program) if program else ()), str(ROOT / f"{lesson}.py")]
    return subprocess.run(
        [*words, *map(str, args)],
        cwd=cwd,
        env=variables | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


class Mistake(NamedTuple):
    lesson: str
    args: str
    says: str  # a regular expression
    env: dict | None = None
    program: str | None = None


def documented(lesson):
    return re.escape(LESSONS[lesson].run)


def alone(lesson):
    return ALONE if "torchrun" in LESSONS[lesson].run else {}


def path(name, says):
    return Mistake("multigpu", f"1 1 --checkpoint_path {name}", says)


AT_LEAST_1 = "but must be at least 1"
BY_PYTHON = "no RANK in the environment, start it with torchrun: "
MISTAKES = {
    "no torchrun": Mistake(
        "multigpu_torchrun", "50 10", BY_PYTHON + documented("multigpu_torchrun")
    ),
    "no torchrun on nodes": Mistake("multinode", "50 10", BY_PYTHON + documented("multinode")),
    "save_every 0": Mistake("multigpu", "50 0", f"save_every is 0, {AT_LEAST_1}"),
    "epochs -1": Mistake("single_gpu", "-1", f"total_epochs is -1, {AT_LEAST_1}"),
    "not a number": Mistake("multigpu_torchrun", "ten", ".* total_epochs: .*'ten' .*--help.*"),
    "unknown flag": Mistake("multinode", "5 1 --lr=1", "unrecognized arguments: --lr=1 .*--help.*"),
    "more than all": Mistake(
        "single_gpu", "1 1 --batch_size 2049", "--batch_size is 2049, .* 1 process .* at most 2048"
    ),
    "more than a share": Mistake(
        "multigpu", "1 1 --batch_size 513", "--batch_size is 513, .* 4 processes .* at most 512",
        {"NPROC": "4"},
    ),
    "more than a worker's share": Mistake(
        "multigpu_torchrun", "1 1 --batch_size 513", "--batch_size .* 4 processes .* 512", FOUR
    ),
    "NPROC 0": Mistake("multigpu", "", "NPROC is '0', but must be .* at least 1", {"NPROC": "0"}),
    "NPROC two": Mistake("multigpu", "", "NPROC is 'two', but must be .*", {"NPROC": "two"}),
    "more processes than GPUs": Mistake(
        "multigpu", "1 1",
        r"4 processes, but 2 GPUs: set NPROC=2, or CUDA_VISIBLE_DEVICES= \(empty\) .* CPU",
        {"NPROC": "4"}, fake(count=2),
    ),
    "more workers than GPUs": Mistake(
        "multinode", "1 1", "4 processes, but 1 GPU: set --nproc_per_node=1, or CUDA_VIS.* the CPU",
        FOUR, fake(count=1),
    ),
    "no folder": path("no/a.pt", "no folder .*/no for the checkpoint: make it, or pass another .*"),
    "a folder": path(".", "--checkpoint_path .* is a folder, but must name a file"),
    # Not even root, for whom permissions do not count, can make a file there.
    "read-only folder": path("/proc/a.pt", r"cannot write to /proc \(.+\): pass another .*"),
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What all the mistakes above get; two at once, because a start is mostly imports."""

    def answer(case):
        folder, words = tmp_path_factory.mktemp("mistake"), case.args.split()
        process = python(case.lesson, *words, cwd=folder, env=case.env, program=case.program)
        return process, os.listdir(folder)

    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(answer, case) for name, case in MISTAKES.items()}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_gets_one_line(name, answers):
    """Where the name says GPUs, torch's answers about them are pretended: see `fake`."""
    (process, left), case = answers[name].result(), MISTAKES[name]
    assert process.returncode == 2
    assert re.fullmatch(f"{case.lesson}.py: {case.says}\n", process.stderr), process.stderr
    assert "Epoch" not in process.stdout and left == []


def check_each(check, cases):
    """`check(case)` for each case, two at once."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, cases))


def check_said_once(process, lesson, says):
    """Our line is said once over all ranks and restarts, and only torchrun shows tracebacks."""
    lines = process.err.splitlines()
    ours = [number for number, line in enumerate(lines) if line.startswith(f"{lesson}.py: ")]
    assert [lines[number] for number in ours] == [f"{lesson}.py: {says}"], process.err
    traces = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
    assert all(number > ours[0] and "bin/torchrun" in lines[number + 1] for number in traces)
    assert not any(line.startswith("[rank") for line in lines)


def test_torchrun_for_a_script_that_is_not_for_it(tmp_path, monkeypatch):
    variables, words = processes.command("multigpu_torchrun", nproc=1, launcher=RESTARTS_ONCE)
    words = [word.replace("multigpu_torchrun.py", "multigpu.py") for word in words]
    monkeypatch.setattr(processes, "command", lambda *_, **__: (variables, words))
    process = run("multigpu", cwd=tmp_path)
    assert process.status == 1 and process.lines == []
    documented = LESSONS["multigpu"].run
    check_said_once(process, "multigpu", f"not for torchrun, start it as documented: {documented}")


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

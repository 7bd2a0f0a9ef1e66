"""What a user can get wrong is said in one line: the value, what it must satisfy, the nearest."""

import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from guard import UserError
from mingpt import cli, config, metrics, sample, tokens
from mingpt import main as command_line
from mingpt.config import Config
from tests.mingpt import texts
from tests.mingpt.conftest import options
from tests.processes import ROOT, STANDALONE, run


def said(words):
    with pytest.raises(UserError) as mistake:
        cli.parse(Config, words, Config(), "about")
    assert "\n" not in str(mistake.value)
    return str(mistake.value)


FIELDS = {
    "--batch_sise 3": "unrecognized options: --batch_sise, 3: the nearest is --batch_size",
    "--batch_size many": "error parsing --batch_size: invalid literal for int()",
    "--batch_size": "missing value for argument '--batch_size'",
    "--model gpt3": "invalid choice 'gpt3' for argument '--model'. Expected one of ('gpt-nano', ",
    "--batch_size 0": "batch_size is 0, but must be at least 1",
    "--save_every 0": "save_every is 0, but must be at least",
    "--learning_rate 0": "learning_rate is 0.0, but must be above 0",
    "--learning_rate nan": "learning_rate is nan, but must be above 0",
    "--min_learning_rate 1": "min_learning_rate is 1.0, but must be from 0 to learning_rate, 0.008",
    "--learning_rate inf": "learning_rate is inf, but must be finite",
    "--weight_decay nan": "weight_decay is nan, but must be at least 0",
    "--weight_decay -1": "weight_decay is -1.0, but must be at least 0",
    "--stopped_status 256": "stopped_status is 256, but must be at most 255",
    f"--seed {2**64}": f"seed is {2**64}, but must be at most {2**62}",
    "--beta2 1": "beta2 is 1.0, but must be in [0, 1)",
    "--dropout 1": "dropout is 1.0, but must be in [0, 1)",
    "--n_head 3": "n_embd is 128, but must be a multiple of n_head, 3: the nearest is 129",
    "--n_embd 130": "n_embd is 130, but must be a multiple of n_head, 4: the nearest is 128",
}


@pytest.mark.parametrize("words", FIELDS)
def test_a_field_that_cannot_be(words):
    assert said(words.split()).startswith(FIELDS[words])


def test_every_field_has_a_help_line(capsys):
    for kind in (Config, sample.Options):
        with pytest.raises(SystemExit) as ended:
            cli.parse(kind, ["--help"], kind(), "about")
        assert ended.value.code == 0
        text = capsys.readouterr().out
        for field in kind.__annotations__:
            found = re.search(rf"--{field}\b(.*?)\((default|optional)", text, re.DOTALL)
            assert len(re.findall("[a-zA-Z]{2,}", found[1])) > 2, field


def test_only_one_rank_helps(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        cli.parse(Config, ["--help"], Config(), "about")
    assert capsys.readouterr().out == ""
    assert said(["--batch_sise", "3"]).startswith(FIELDS["--batch_sise 3"])  # as rank 0


@pytest.mark.parametrize("batch, world, nearest", [(12, 8, 16), (12, 5, 10), (2, 3, 3)])
def test_ranks_that_do_not_divide_the_batch(batch, world, nearest):
    message = f"batch_size is {batch}.* {world}: the nearest is {nearest}"
    with pytest.raises(UserError, match=message):
        Config(batch_size=batch).accumulation(world)
    assert Config(batch_size=nearest).accumulation(world) == 1
    assert Config(batch_size=96, micro_batch_size=9).accumulation(4) == 3  # of 8


def test_presets_are_sound():
    assert list(config.PRESETS) == ["laptop", "gpu", "8gpus", "nodes"]
    for preset, world in (("gpu", 1), ("8gpus", 8), ("nodes", 16)):
        args = config.PRESETS[preset]
        steps = args.accumulation(world)
        assert args.batch_size // world // steps <= args.micro_batch_size


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(command_line, "find_spec", lambda package: None)
    with pytest.raises(UserError, match="needs the package tensorboard: pip install tensorboard"):
        command_line.ready(Config(tensorboard="board"))


def test_a_compiler_that_is_missing_is_named(monkeypatch):
    if torch.accelerator.is_available():
        pytest.skip("a GPU compiles without one")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("CXX", "nonesuch")
    with pytest.raises(UserError, match=r"no nonesuch: .* or pass --no_compile$"):
        command_line.ready(config.PRESETS["gpu"])
    command_line.ready(cli.parse(Config, ["--no_compile"], config.PRESETS["gpu"], "about"))


def test_a_file_for_tensorboard(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setattr(command_line, "find_spec", lambda package: True)
    with pytest.raises(UserError, match="is a file, but must be a folder"):
        command_line.ready(Config(tensorboard=__file__))


def test_characters_come_back_and_others_are_refused():
    kind = tokens.build("chars", "héllo\n")
    assert kind.decode(kind.encode("hello".replace("e", "é"))) == "héllo"
    assert tokens.restore(kind.about).vocabulary == kind.vocabulary == "\nhloé"
    with pytest.raises(UserError, match="'z' is not among the 5 characters"):
        kind.encode("z")


LOADER = SimpleNamespace(seconds=0.0, device=torch.device("cpu"))


def test_the_speed_is_that_of_training(group, config, monkeypatch):
    """Of the steps since the last line, or since a validation, whose time does not count."""
    clock = iter([0, 10, 10, 100, 105, 105])
    monkeypatch.setattr(metrics, "time", SimpleNamespace(perf_counter=clock.__next__, time=float))
    args = config()
    log = metrics.Metrics(args, args.build(8), LOADER, 0)
    log.trained(9, torch.tensor([1.0, 1.0]))
    log.validated(14, torch.tensor([1.0, 1.0]))
    log.trained(19, torch.tensor([1.0, 1.0]))
    told = [json.loads(line) for line in log.path.read_text().splitlines()]
    speeds = [line["tokens_per_second"] for line in told if "train_loss" in line]
    tokens = args.batch_size * args.block_size
    assert speeds == [tokens, tokens]


def test_tensorboard_has_what_the_log_has(group, config, tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="no tensorboard: --tensorboard needs it",
    )
    args = config(tensorboard=str(tmp_path / "board"))
    log = metrics.Metrics(args, args.build(8), LOADER, 0)
    log.validated(14, torch.tensor([3.0, 2.0]))
    log.trained(19, torch.tensor([1.0, 1.0]))
    told = events.EventAccumulator(args.tensorboard)
    told.Reload()
    found = {name: told.Scalars(name) for name in told.Tags()["scalars"]}
    assert set(found) == {"val_loss", "train_loss", "tokens_per_second", "computing"}
    assert [(event.step, event.value) for event in found["val_loss"]] == [(15, 1.5)]


# From here on through real launchers: one line, said once, whatever the number of processes.


def lines(process):
    return [line for line in process.err.splitlines() if line.startswith("main.py: ")]


@pytest.mark.parametrize("words, message", [
    (["--data", "/no/such/text"], "cannot read --data /no/such/text: No such file or directory"),
    (["--batch_size", "3"],
     "batch_size is 3, but must be a multiple of the number of processes, 2: the nearest is 4"),
    (["--batch_sise", "3"],
     "unrecognized options: --batch_sise, 3: the nearest is --batch_size (--help lists the "
     "options)"),
    (["--data", "http://127.0.0.1:9/text"],  # known to one of them, when they have met
     "cannot read --data http://127.0.0.1:9/text: Connection refused"),
    (["labtop"], "no preset labtop, but laptop, gpu, 8gpus, nodes: the nearest is laptop"),
])  # fmt: skip
def test_said_once_by_two_processes(words, message, tmp_path):
    once = ("--standalone", "--max-restarts=0")
    process = run("mingpt", *words, cwd=tmp_path, launcher=once, limit=60)
    assert process.status == 1
    assert lines(process) == [f"main.py: {message}"]


def test_without_torchrun(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "mingpt.main"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "main.py: no RANK in the environment, start it with torchrun: OMP"
    )


def test_a_full_disk(text, tmp_path):
    """The limit on the size of files stands for it; it does not reach the small log."""
    import resource

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    once = ("--standalone", "--max-restarts=0")
    process = run("mingpt", *options(data=text), cwd=tmp_path, launcher=once, prelude=limit)
    assert process.status == 1
    assert re.search(
        r"main.py: cannot save .*mingpt.pt after step 8: .*; what was saved", process.err
    )
    assert not (tmp_path / "mingpt.pt").exists()
    assert [path.name for path in tmp_path.glob(".mingpt*")] == []


@pytest.mark.parametrize("kind, entropy, floor, ceiling", [
    ("uniform", 2.7726, -0.01, 0.05),  # ln 16: who gets below has seen what it is asked
    ("markov", 0.8979, -0.03, 0.02),
])  # fmt: skip
def test_learns_to_the_entropy_of_the_source_and_no_further(
    kind, entropy, floor, ceiling, tmp_path
):
    path = tmp_path / "text"
    path.write_text(getattr(texts, kind)(200_000))
    few = {
        "total_steps": 400,
        "eval_every": 400,
        "log_every": 100,
        "save_every": 1000,
        "batch_size": 32,
    }
    process = run(
        "mingpt", *options(data=path, dropout=0, learning_rate=0.01, weight_decay=0, **few),
        cwd=tmp_path, nproc=1, launcher=STANDALONE,
    )  # fmt: skip
    assert (process.status, process.err) == (0, "")
    loss = texts.curve(tmp_path)[400]
    assert entropy * (1 + floor) < loss < entropy * (1 + ceiling)
    told = [json.loads(line) for line in (tmp_path / "mingpt.jsonl").read_text().splitlines()]
    assert all(line["computing"] > 0.5 for line in told if "train_loss" in line)

"""A user's mistake gets one line: the value, what it must satisfy, and the nearest valid one."""

import re

import pytest

from guard import UserError
from mingpt import cli, config, metrics, sample, tokens
from mingpt import main as command_line
from mingpt.config import Config
from tests.mingpt.conftest import python
from tests.processes import ONCE, ROOT, run


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
    "--weight_decay -1": "weight_decay is -1.0, but must be at least 0",
    "--beta2 1": "beta2 is 1.0, but must be in [0, 1)",
    "--dropout 1": "dropout is 1.0, but must be in [0, 1)",
    "--n_head 3": "n_embd is 128, but must be a multiple of n_head, 3: the nearest is 129",
    "--n_embd 1": "n_embd is 1, but must be a multiple of n_head, 4: the nearest is 4",
    "--n_layer 0": "n_layer is 0, but must be at least 1",
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


def test_the_log_is_not_appended_to_the_text():
    with pytest.raises(UserError, match=r"^a.jsonl is --data, but also the log's name: change one"):
        Config(data="./a.jsonl", checkpoint_path="a.pt")


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
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("CXX", "nonesuch")
    with pytest.raises(UserError, match=r"no nonesuch: .* or pass --no_compile$"):
        command_line.ready(config.PRESETS["gpu"])
    command_line.ready(cli.parse(Config, ["--no_compile"], config.PRESETS["gpu"], "about"))


@pytest.mark.parametrize("field, value, says", [
    ("temperature", float("nan"), "temperature is nan, but must be at least 0"),
    ("count", 0, "count is 0, but must be at least 1"),
    ("prompt", "", "prompt is empty, but must have a character, or be left out"),
])  # fmt: skip
def test_a_sample_that_cannot_be(field, value, says):
    with pytest.raises(UserError, match=f"^{re.escape(says)}$"):
        sample.Options(**{field: value})


def test_a_board_that_cannot_be_written():
    pytest.importorskip("tensorboard", reason="no tensorboard: --tensorboard needs it")
    with pytest.raises(UserError, match=r"^cannot write --tensorboard /proc/board: No such file"):
        metrics._board("/proc/board")


def test_characters_come_back_and_others_are_refused():
    kind = tokens.build("chars", "héllo\n")
    assert kind.decode(kind.encode("hello".replace("e", "é"))) == "héllo"
    assert tokens.restore(kind.about).vocabulary == kind.vocabulary == "\nhloé"
    with pytest.raises(UserError, match="'z' is not among the 5 characters"):
        kind.encode("z")


# From here on with real launchers: one rank prints the line, once.


def lines(process):
    return [line for line in process.err.splitlines() if line.startswith("main.py: ")]


@pytest.mark.parametrize("words, message", [
    (["--batch_size", "3"],
     "batch_size is 3, but must be a multiple of the number of processes, 2: the nearest is 4"),
    (["--data", "http://127.0.0.1:9/text"],  # one rank knows it, after init_process_group
     "cannot read --data http://127.0.0.1:9/text: Connection refused"),
])  # fmt: skip
def test_said_once_by_two_processes(words, message, tmp_path):
    process = run("mingpt", *words, cwd=tmp_path, launcher=ONCE)
    assert process.status == 1
    assert lines(process) == [f"main.py: {message}"]


def test_a_preset_that_is_none(tmp_path):
    ended = python("main", "GPU", cwd=tmp_path)
    said = "main.py: no preset GPU, but laptop, gpu, 8gpus, nodes: the nearest is gpu\n"
    assert (ended.returncode, ended.stderr) == (2, said)


def test_without_torchrun(tmp_path):
    ended = python("main", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith(
        "main.py: no RANK in the environment, start it with torchrun: torchrun "
    )


def test_one_rank_says_it_where_the_launcher_ends_the_others(tmp_path):
    """As with mpirun, and with srun --kill-on-bad-exit. Left alone, the other prints it too."""
    tell = "import time\ntime.sleep = lambda seconds: print('wait', seconds)"
    (tmp_path / "sitecustomize.py").write_text(tell)
    path = f"{tmp_path}:{ROOT}"
    for rank, out in (("0", ""), ("1", "wait 3\n")):
        ended = python("main", "--batch_sise", 3, cwd=tmp_path, RANK=rank, PYTHONPATH=path)
        assert (ended.returncode, ended.stdout) == (2, out)
        assert ended.stderr.startswith("main.py: unrecognized options: --batch_sise, 3")

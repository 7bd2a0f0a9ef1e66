"""Run each command of README and CONTRIBUTING as printed, or say below why not."""

import re

import pytest

from tests.processes import LESSONS, ROOT
from tools.pages import shell
from tools.pages.recordings import Recordings

README = (ROOT / "README.md").read_text(encoding="utf-8")
BOTH = README + (ROOT / "docs" / "CONTRIBUTING.md").read_text(encoding="utf-8")
LIMIT = 300  # seconds; it catches hangs and says nothing about speed
TRAINED = r"Epoch 50 \| loss 0\.02\d+ over 2048 samples"

RUN = {  # the exit status, and what the output must contain
    "make help": (0, "make docs"),
    "diff multigpu.py multigpu_torchrun.py": (1, "(?m)^< .*LOCAL_RANK"),
    "python -m tools.series diff multigpu_torchrun": (0, "resume: Resuming from a checkpoint"),
    "python -m tools.series show multigpu@3": (0, "DistributedSampler"),
    "python -m tools.series diff multigpu@2 multigpu@3": (0, r"(?m)^\+.*DistributedSampler"),
    "python -m tools.series run multigpu@3 5 1": (0, r"Epoch  5 \| loss .* over 1024 samples"),
    "python -m tools.series observe multigpu@3": (0, "multigpu@2 does not"),
    "python -m tools.series run mingpt@3 --total_steps 9": (
        0, r"(?s)\A(?!.*val loss).*Step +9 \| train loss",  # the whole lesson also validates
    ),
    "python -m tools.series lint": (0, ""),
    "python -m tools.series tree": (0, "multinode"),
    "python -m workshop --help": (0, "how far each learner is"),
    "python -m workshop ready": (0, r"(?m)^ready$"),
    "python -m workshop start": (0, "multigpu/one-line"),
    "python -m workshop start multigpu": (0, "7 Ending the process group"),
    "python -m ddp_doctor -- python multigpu.py 5 2": (0, "2 ranks, 160 optimizer steps"),
    "NPROC=4 python multigpu.py": (0, f"(?s)Starting 4 processes.*{TRAINED}"),
}
# These are part of others, or need the network, hours or somebody's judgement.
NOT_RUN = {
    "make", "make soak", "uv venv && uv pip install --torch-backend=cpu torch",
    ". launch/restarts.sh", "kill -9 $(pgrep -nf multigpu_torchrun.py)",
    "torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 600 10",
    "source .venv/bin/activate", "pre-commit install", "python3 tools/bootstrap.py dev",
    "pip install ./doctor", "CUDA_VISIBLE_DEVICES=", "python -m tools.pages confirm",
    "python -m tools.pages record --stale", "python -m tools.pages record 2_multigpu",
    "python -m tools.pages record --all --check", "python -m tools.pages record --elsewhere",
    "python -m tests.workshop.recorded --stale",
    'python -m pytest doctor/tests/test_verdicts.py -n 2 --record -m "soak or not soak" -k run_has',
    "python -m tools.series sync single_gpu", "python -m pytest -m site",
    "ENDPOINT=node1:29500 . launch/torchrun_env.sh",
}  # fmt: skip
PAGES = [*(ROOT / "docs" / "pages").glob("*.py"), *(ROOT / "docs" / "pages").glob("*.rst")]

COMMAND = re.compile(r"(?:[A-Z_]{3,}=|(?:python3?|torchrun|make|diff|kill|uv|pip|git|source)\b)")


def commands(text):
    """The commands in a Markdown text; "..." is short for `python -m tools.series`."""
    found = []
    parts = re.split(r"(?ms)^```(\w*)\n(.*?)^```$", text)
    for prose, language, block in zip(
        parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True
    ):
        for code in re.findall(r"`([^`]+)`", prose):
            words = " ".join(code.split()).replace("... ", "python -m tools.series ")
            found += [words] if COMMAND.match(words) else []
        lines = block.splitlines()
        if language in ("", "console"):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        assert language in ("", "console", "sh"), f"are there commands in a block of {language}?"
        found += [line.partition("  #")[0].strip() for line in lines if line.strip()]
    return list(dict.fromkeys(found))


def test_every_command_is_run():
    """Below, by .ci/run, on a page, or it is that of a lesson, which its tests run."""
    elsewhere = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    elsewhere += (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    elsewhere += "\n".join(lesson.run for lesson in LESSONS.chain)
    found = set(commands(BOTH))
    unknown = found - RUN.keys() - NOT_RUN
    assert not [command for command in unknown if command not in elsewhere]
    assert not (RUN.keys() | NOT_RUN) - found


@pytest.mark.parametrize("command", RUN)
def test_a_command_does_what_it_is_for(command, monkeypatch):
    monkeypatch.setattr(shell, "COPIED", [*shell.COPIED, "README.md", "Makefile", "docs/_static/*"])
    status, pattern = RUN[command]
    (ran,) = shell.run([command], timeout=LIMIT)
    assert ran.status == status, ran.output
    assert re.search(pattern, ran.output), ran.output


def test_the_output_shown_is_that_of_a_run():
    """In order, up to the speed and to the last digits of a loss, which depend on the CPU."""
    block = re.search(r"(?ms)^```\n\$ (python multigpu\.py 50 10)\n(.*?)^```$", README)
    (ran,) = Recordings(ROOT).find((block[1],)).ran  # a page shows the same command
    about = re.compile(r"(?<=loss \d\.\d{4})\d|[\d,]+ samples/s")
    shown, printed = (about.sub("", text).splitlines() for text in (block[2], ran.output))
    assert [line for line in shown if line != "..."] == [line for line in printed if line in shown]


def test_the_kill_shown_is_that_of_the_front_page():
    """In order, up to the times."""
    kill, resume = re.findall(r"(?m)^ *[\d.]+ s \| (.*)$", README)
    runs = Recordings(ROOT).of_pages["index"]
    (output,) = (
        one.output for lines in runs for one in runs[lines][0].ran if "kill.py" in one.line
    )
    assert output.index(f"| {kill}\n") < output.index(f"| {resume}\n")

"""Run each command of README and CONTRIBUTING as printed, or say below why not."""

import re

import pytest

from tests.processes import LESSONS, ROOT
from tools.pages import shell
from tools.pages.recordings import Recordings

README = (ROOT / "README.md").read_text(encoding="utf-8")
BOTH = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
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
    "python -m workshop start": (0, "multigpu/start-the-processes"),
    "python -m workshop start multigpu": (0, "7 Ending the process group"),
    "python -m ddp_doctor -- python multigpu.py 5 2": (0, "2 ranks, 160 optimizer steps"),
    "NPROC=4 python multigpu.py": (0, f"(?s)Starting 4 processes.*{TRAINED}"),
}
NOT_RUN = {
    "python -m tools.pages record": "tests/test_recordings.py runs it",
    "make run": "tests/test_bootstrap.py runs it",
    "make test": "is what runs this test",
    "make docs": ".ci/run builds the site by it",
    "make soak": "takes hours, and is run by hand before a claim is made",
    "make": "stands for any of them",
    "make test-all": ".ci/run runs it",
    "uv venv && uv pip install --torch-backend=cpu torch": "needs uv and the network",
    "source .venv/bin/activate": "tests/test_bootstrap.py runs scripts in an activated .venv",
    "pip install .": "tests/doctor/test_wheel.py runs it",
    "kill -9": "tests/test_resume.py does it, at any moment",
    "CUDA_VISIBLE_DEVICES=": "tests/test_messages.py sets it",
    "OMP_NUM_THREADS=1": "is part of the documented commands",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1": "is part of the documented commands",
    "ENDPOINT=node1:29500 . launch/torchrun_env.sh": "docs/pages/4_multinode.py sources it",
    "torchrun --nnodes=2 multinode.py": "docs/pages/4_multinode.py runs it in two shells",
    "python -m workshop check": "tests/workshop/test_commands.py runs it",
    "python -m tools.series sync single_gpu": "tests/series/test_series_sync.py runs it",
    "python -m tools.pages confirm": "tests/test_pages.py runs it",
    "python -m pytest -m site": ".ci/run runs it",
    "python3 tools/bootstrap.py dev": ".ci/run runs it",
    "pre-commit install": "needs pre-commit; tests/test_repository.py looks at what it runs",
    "lychee docs/_build/html README.md CONTRIBUTING.md CHANGELOG.md": ".ci/run runs it",
    'python -m mingpt.sample --prompt "def "': "docs/pages/5_minGPT.py runs it, in the same words",
    "python multigpu.py 50 10": "tests/test_learning.py runs it, and so does the test below",
} | {
    lesson.run: "tests/test_learning.py or tests/mingpt/test_trainer.py runs it"
    for lesson in LESSONS.chain
}

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


def test_every_command_is_run_or_has_a_reason():
    assert sorted(commands(BOTH)) == sorted(RUN | NOT_RUN)


@pytest.mark.parametrize("command", RUN)
def test_a_command_does_what_it_is_for(command, monkeypatch):
    monkeypatch.setattr(shell, "COPIED", [*shell.COPIED, "README.md", "Makefile", "docs/_static/*"])
    status, pattern = RUN[command]
    (ran,) = shell.run([command], timeout=LIMIT)
    assert ran.status == status, ran.output
    assert re.search(pattern, ran.output), ran.output


def test_the_output_shown_is_that_of_a_run():
    """Line by line, up to the speed. Another CPU may round the losses differently."""
    block = re.search(r"(?ms)^```\n\$ (python multigpu\.py 50 10)\n(.*?)^```$", README)
    (ran,) = Recordings(ROOT).find((block[1],)).ran  # a page shows the same command
    lines = iter(ran.output.splitlines())
    for shown in block[2].splitlines():
        if shown != "...":
            assert any(alike(shown, line) for line in lines), (
                f"no line like {shown!r}\n{ran.output}"
            )


def alike(shown, line):
    loss = re.compile(r"(?<=loss )[\d.]+")
    speed = re.compile(r"[\d,]+ samples/s")
    if speed.sub("", loss.sub("", shown)) != speed.sub("", loss.sub("", line)):
        return False
    pairs = zip(loss.findall(shown), loss.findall(line), strict=True)
    return all(float(a) == pytest.approx(float(b), rel=1e-3) for a, b in pairs)

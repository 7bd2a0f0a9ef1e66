"""After each edit the script runs, and prints what the script before it did not."""

import pytest

from tests.processes import LESSONS
from tools.series import observe, stages

OF_THE_GPT = stages.of(LESSONS["mingpt"])[1:]

CHAIN = {lesson.name for lesson in LESSONS.chain}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in CHAIN else pytest.mark.soak)  # their pages run them
    for name in LESSONS.with_stages
])  # fmt: skip
def test_each_stage_shows_what_the_stage_before_does_not(name):
    """All of a lesson in one test: two stages share a run."""
    problems = [observe.Observed(stage).problem for stage in stages.of(LESSONS[name])[1:]]
    assert not any(problems), "\n\n".join(filter(None, problems))


@pytest.mark.parametrize("stage", OF_THE_GPT, ids=lambda stage: stage.name)
def test_every_stage_of_the_gpt_resumes_from_its_own_checkpoint(stage):
    output = observe.output(stage, LESSONS["mingpt"].observe, None, "kill")
    resumed, _, rest = output.partition("Resuming after ")[2].partition("\n")
    unit, done = resumed.split()
    assert unit == ("epoch" if stage.number == 1 else "step") and int(done) >= 5
    assert f"{unit.capitalize()} {20:{2 if unit == 'epoch' else 5}} | checkpoint saved" in rest


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize(
    "name, args",
    [
        ("multigpu@4", "4 3 --batch_size 16"),
        ("mingpt@4", "--data {root}/guard.py --model gpt-nano --batch_size 8 --block_size 24 "
         "--total_steps 20 --save_every 4 --log_every 2"),
    ],
)  # fmt: skip
def test_as_well_with_other_arguments(processes, name, args):
    """Edits that change the arithmetic, with an undocumented number of processes."""
    stage = stages.find(LESSONS, name)
    args = tuple(args.format(root=LESSONS.root).split())
    assert observe.Observed(stage, args, processes).problem is None

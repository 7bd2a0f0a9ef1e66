"""After each edit the script runs, and prints what the script before it did not.

Of the chain that is proven here. Of the other lessons it is proven by their pages, which run each
stage and expect what lessons.toml says; `make soak` runs them here, too.
"""

import pytest

from tests.processes import LESSONS
from tools.series import observe, stages

CHAIN = {lesson.name for lesson in LESSONS.chain}
SAVED = {"Trainer._save_checkpoint", "Trainer._load_checkpoint"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in CHAIN else pytest.mark.soak)
    for name in LESSONS.with_stages
])  # fmt: skip
def test_each_stage_shows_what_the_stage_before_does_not(name):
    """All of a lesson in one test: two stages share a run."""
    problems = [observe.Observed(stage).problem for stage in stages.of(LESSONS[name])[1:]]
    assert not any(problems), "\n\n".join(filter(None, problems))


@pytest.mark.parametrize(
    "stage",
    [
        pytest.param(stage, id=stage.name, marks=() if SAVED & changed else pytest.mark.soak)
        for stage in stages.of(LESSONS["mingpt"])[1:]
        for changed in [{row.scope for row in stage.rows if row.changed}]
    ],
)
def test_every_stage_of_the_gpt_resumes_from_its_own_checkpoint(stage):
    output = observe.output(stage, LESSONS["mingpt"].observe, None, "kill")
    resumed, _, rest = output.partition("Resuming after ")[2].partition("\n")
    unit, done = resumed.split()
    assert unit == ("epoch" if stage.number == 1 else "step") and int(done) >= 5
    assert f"{unit.capitalize()} {20:{2 if unit == 'epoch' else 5}} | checkpoint saved" in rest

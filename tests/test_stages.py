"""After each edit there is a script that runs, and shows what the script before it did not."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.processes import LESSONS
from tools.series import observe, stages

STAGES = [stage for name in LESSONS.with_stages for stage in stages.of(LESSONS[name])[1:]]


@pytest.fixture(scope="module")
def outputs():
    """Of every stage and the one before; two runs at once, because a start is mostly imports."""
    with ThreadPoolExecutor(2) as pool:
        kinds = [(stage, stage.edit.observation.fault) for stage in STAGES]
        asked = dict.fromkeys((one, f) for stage, f in kinds for one in (stage.before, stage))
        runs = [pool.submit(observe.output, stage, observe.ARGS, None, f) for stage, f in asked]
        yield dict(zip(asked, runs, strict=True))
        for run in runs:
            run.cancel()


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_shows_what_the_stage_before_does_not(stage, outputs):
    fault = stage.edit.observation.fault
    for one in (stage.before, stage):
        outputs[one, fault].result()  # kept: what follows does not run it again
    assert observe.Observed(stage).problem is None


@pytest.mark.parametrize("processes", [1, 4])
def test_as_well_with_other_arguments(processes):
    """The one edit that changes the arithmetic, with as many processes as are not documented."""
    stage = stages.find(LESSONS, "multigpu@4")
    args = ("4", "3", "--batch_size", "16")
    assert observe.Observed(stage, args, processes).problem is None

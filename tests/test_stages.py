"""After each edit the script runs, and prints what the script before it did not.

Of two lessons the pages run every stage, so their recordings prove it. Stages of the chain that
need a fault run here. Of all others the pages expect what lessons.toml says; `make soak` runs them.
"""

import re

import pytest

from tests.processes import LESSONS, ROOT
from tools import series
from tools.pages.recordings import Recordings
from tools.series import observe, stages
from tools.series.lint import lint

PORT = series.load(ROOT / "docs" / "port")  # of the page "From your script to DDP"
SERIES = {name: of for of in (LESSONS, PORT) for name in of.with_stages}
STAGES = [stage for name, of in SERIES.items() for stage in stages.of(of[name])[1:]]
ON_PAGES = ("multigpu", "classifier_ddp")
RUN = re.compile(r"python -m tools\.series run (?:--probe )?(\S+)")


@pytest.fixture(scope="module")
def printed():
    """What each stage printed that a page runs."""
    pages = Recordings(ROOT).of_pages.values()
    lines = [ran for page in pages for recording, _ in page.values() for ran in recording.ran]
    return {found[1]: ran.output for ran in lines if (found := RUN.match(ran.line))}


@pytest.mark.quick
@pytest.mark.parametrize("lesson", ON_PAGES)
def test_the_page_shows_of_each_stage_what_the_stage_before_does_not(lesson, printed):
    for stage in stages.of(SERIES[lesson][lesson])[1:]:
        edit, after = stage.edit.observation, printed[stage.name]
        before = printed.get(stage.before.name, "")  # no page runs the first one
        assert edit.holds([after], [before]), f"{stage.name}: {after}"
        assert not edit.holds([before], [before]), f"{stage.before.name}: {before}"


def test_the_port_keeps_the_rules_of_the_series():
    assert lint(PORT) == []


def test_validation_by_shares_gives_what_validation_of_all_images_gives(printed):
    line = re.compile(r"Epoch (\d).*val loss (\S+) \| accuracy (\S+)")
    all_images, shares = (set(line.findall(printed[f"classifier_ddp@{n}"])) for n in (4, 5))
    assert all_images == shares and all_images


@pytest.mark.parametrize("stage", [
    pytest.param(stage, id=stage.name, marks=() if is_live else pytest.mark.soak)
    for stage in STAGES
    for is_live in [stage.edit.observation.fault and stage.lesson in LESSONS.chain]
])  # fmt: skip
def test_a_stage_shows_what_the_stage_before_does_not(stage):
    assert not observe.problem(stage)


@pytest.mark.soak
@pytest.mark.parametrize("stage", stages.of(LESSONS["mingpt"])[1:], ids=lambda stage: stage.name)
def test_every_stage_of_the_gpt_resumes_from_its_own_checkpoint(stage):
    output = observe.output(stage, LESSONS["mingpt"].observe, "kill")
    resumed, _, rest = output.partition("Resuming after ")[2].partition("\n")
    unit, done = resumed.split()
    assert unit == ("epoch" if stage.number == 1 else "step") and int(done) >= 5
    assert f"{unit.capitalize()} {20:{2 if unit == 'epoch' else 5}} | checkpoint saved" in rest

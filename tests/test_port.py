"""The chain of the page "From your script to DDP", whose scripts need no other file."""

import re

from tests.processes import ROOT
from tools import series
from tools.series import observe, stages
from tools.series.lint import lint

PORT = series.load(ROOT / "docs" / "port")


def test_it_keeps_the_rules_of_the_series():
    assert lint(PORT) == []


def test_each_stage_shows_what_the_stage_before_does_not():
    """All in one test: two stages share a run."""
    problems = [observe.Observed(stage).problem for stage in stages.of(PORT["classifier_ddp"])[1:]]
    assert not any(problems), "\n\n".join(filter(None, problems))


def test_validation_by_shares_gives_what_validation_of_all_images_gives():
    def validation(name):
        output = observe.output(stages.find(PORT, name), PORT["classifier_ddp"].observe)
        return set(re.findall(r"Epoch (\d).*val loss (\S+) \| accuracy (\S+)", output))

    assert len(validation("classifier_ddp@4")) == 2
    assert validation("classifier_ddp@5") == validation("classifier_ddp@4")

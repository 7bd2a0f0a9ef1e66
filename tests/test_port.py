"""The chain of the page "From your script to DDP", whose scripts need no other file."""

import re

import pytest

from tests.processes import ROOT
from tools import series
from tools.series import observe, stages
from tools.series.lint import lint

PORT = series.load(ROOT / "docs" / "port")
STAGES = stages.of(PORT["classifier_ddp"])[1:]


def test_it_keeps_the_rules_of_the_series():
    assert lint(PORT) == []


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_a_stage_shows_what_the_stage_before_does_not(stage):
    assert observe.Observed(stage).problem is None


def test_validation_by_shares_gives_what_validation_of_all_images_gives():
    def validation(name):
        output = observe.output(stages.find(PORT, name), PORT["classifier_ddp"].observe)
        return set(re.findall(r"Epoch (\d).*val loss (\S+) \| accuracy (\S+)", output))

    assert len(validation("classifier_ddp@4")) == 2
    assert validation("classifier_ddp@5") == validation("classifier_ddp@4")

"""The chain of the page "From your script to DDP", whose scripts need no other file."""

import re

from tests.test_stages import PORT, printed  # noqa: F401
from tools.series.lint import lint


def test_it_keeps_the_rules_of_the_series():
    assert lint(PORT) == []


def test_validation_by_shares_gives_what_validation_of_all_images_gives(printed):  # noqa: F811
    line = re.compile(r"Epoch (\d).*val loss (\S+) \| accuracy (\S+)")
    all_images, shares = (set(line.findall(printed[f"classifier_ddp@{n}"])) for n in (4, 5))
    assert all_images == shares and all_images

"""The parts of the tree import each other in one direction, and a file stays small."""

import ast

import pytest

from tests.processes import ROOT
from tools.files import own

PARTS = {"tools", "workshop", "ddp_doctor", "tests", "docs"}  # nothing that is taught imports these
MAY = {
    "tools": {"tools"},
    "workshop": {"workshop", "tools", "ddp_doctor"},
    "doctor": {"ddp_doctor"},
    "tests": PARTS,
    "docs": PARTS - {"tests"},
}
FILES = sorted(filter(own(ROOT), ROOT.rglob("*.py")))


def imported(text):
    """The first parts of the names that a script imports, in functions too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.quick
def test_no_part_imports_one_above_it():
    for file in FILES:
        place = file.relative_to(ROOT).parts[0]
        if "tests" in file.parts:
            place = "tests"
        above = {*imported(file.read_text(encoding="utf-8"))} & PARTS - MAY.get(place, set())
        assert not above, f"{file} imports {above}"


@pytest.mark.quick
def test_no_file_is_longer_than_300_lines():
    files = [file for file in FILES if "pages" not in file.parts]  # whose text is prose
    long = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert not {file: lines for file, lines in long.items() if lines > 300}

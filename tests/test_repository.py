"""The project's settings files parse, and what they name exists."""

import json
import re

import pytest

from tests.processes import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML: make test installs what brings it")

GITHUB = ROOT / ".github"
FILES = [ROOT / ".ci" / "run", ROOT / ".devcontainer" / "devcontainer.json",
         ROOT / ".pre-commit-config.yaml", *GITHUB.rglob("*.yml"),
         *GITHUB.rglob("*.md"), *ROOT.glob("*.md")]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_parses_and_what_it_names_exists(file):
    """tests/test_readme.py runs the commands of README and CONTRIBUTING."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        json.loads(text)
    if file.suffix in (".yml", ".yaml"):
        yaml.safe_load(text)
    text = re.sub(r"(?m)^\s*#.*", "", text)
    if file.suffix != ".md":
        targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= set(targets)
    for module in re.findall(r"python3? -m ((?:tools|workshop|mingpt)[\w.]*)", text):
        place = ROOT.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    paths = r"(?<![\w/])(?:tools|tests|docs|launch|workshop)/[\w/]+\.(?:py|rst|toml)\b"
    for path in re.findall(paths, text):
        assert (ROOT / path).exists() or path.endswith("/NAME.py"), path

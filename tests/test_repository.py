"""What surrounds the project: its files parse, and the commands that they name exist."""

import json
import re
import shutil
import subprocess

import pytest

from tests.processes import ROOT

yaml = pytest.importorskip("yaml", reason="no PyYAML: make test installs what brings it")

GITHUB = ROOT / ".github"
FILES = [ROOT / ".pre-commit-config.yaml", *GITHUB.rglob("*.yml")]
NAMING = [ROOT / ".ci" / "run", ROOT / ".devcontainer" / "devcontainer.json", *FILES,
          *GITHUB.rglob("*.md"), *ROOT.glob("*.md")]  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_parses(file):
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    if file.parent.name == "workflows":
        assert all(job["steps"] and job["timeout-minutes"] for job in found["jobs"].values())
    if file.parent.name == "ISSUE_TEMPLATE" and file.stem != "config":
        assert found["name"] and found["description"]
        assert all(part["attributes"]["label"] for part in found["body"])
        assert len({part["id"] for part in found["body"]}) == len(found["body"])


def test_the_container_sets_the_project_up():
    facts = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert facts["postCreateCommand"].endswith("&& make run")


def test_continuous_integration_is_one_script():
    """.ci/run parses, and the workflow calls it; what it installs comes before what needs it."""
    assert "bash .ci/run" in (GITHUB / "workflows" / "ci.yml").read_text(encoding="utf-8")
    subprocess.run([shutil.which("bash"), "-n", str(ROOT / ".ci" / "run")], check=True, timeout=60)


@pytest.mark.parametrize("file", NAMING, ids=lambda file: file.name)
def test_what_a_file_names_exists(file):
    """The commands of README and CONTRIBUTING are the matter of tests/test_readme.py."""
    text = re.sub(r"(?m)^\s*#.*", "", file.read_text(encoding="utf-8"))
    if file.suffix != ".md":
        targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= set(targets)
    for module in re.findall(r"python3? -m ((?:tools|workshop|mingpt)[\w.]*)", text):
        place = ROOT.joinpath(*module.split("."))
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), module
    paths = r"(?<![\w/])(?:tools|tests|docs|launch|workshop)/[\w/]+\.(?:py|rst|toml)\b"
    for path in re.findall(paths, text):
        assert (ROOT / path).exists() or path.endswith("/NAME.py"), path

"""The notebooks of the workshop: their starts are the exercises', and they run."""

import shutil

import pytest

from tests.processes import ROOT
from tests.site import SITE
from workshop.exercises import exercises
from workshop.scenarios import LESSONS

NOTEBOOKS = {path.stem: path for path in SITE.glob("_downloads/**/exercises_*.ipynb")}
pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not NOTEBOOKS, reason="the site is not built: make docs"),
]


def read(lesson):
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOKS[f"exercises_{lesson}"], as_version=4)


@pytest.mark.parametrize("lesson", LESSONS)
def test_every_exercise_has_its_start_and_its_check(lesson):
    sources = [cell.source for cell in read(lesson).cells]
    ours = [one for one in exercises().values() if one.lesson.name == lesson]
    written = [source for source in sources if source.startswith("%%writefile")]
    assert [source.partition("\n")[2] for source in written] == [one.start.rstrip() for one in ours]
    for one in ours:
        assert any(source.endswith(f"check {one.name}") for source in sources)


@pytest.fixture
def repository(tmp_path):
    """A copy of what the workshop needs."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("workshop", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for file in [*ROOT.glob("*.py"), ROOT / "lessons.toml"]:
        shutil.copy(file, tmp_path)
    shutil.copytree(ROOT / "mingpt", tmp_path / "mingpt", ignore=ignored)
    return tmp_path


def test_a_start_fails_and_a_solution_passes_in_cells(repository, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("IPYTHONDIR", str(repository / "ipython"))
    exercise = exercises()["multigpu/start-the-processes"]
    notebook = read("multigpu")
    first = next(
        i for i, cell in enumerate(notebook.cells) if f"start {exercise.name}" in cell.source
    )
    imports, cells = notebook.cells[1], notebook.cells[first : first + 4]
    mended = cells[1].copy()
    mended.source = f"{mended.source.partition(chr(10))[0]}\n{exercise.solution}"
    notebook.cells = [imports, *cells, mended, cells[2].copy()]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = str(number)
    where = {"metadata": {"path": str(repository)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute(
        cwd=str(repository)
    )
    seen = ["".join(out.get("text", "") for out in cell.outputs) for cell in notebook.cells]
    assert "Seen: 1 of 2 processes" in seen[3] and "hint 2 of 3" in seen[4]
    assert "Right. next:" in seen[6]

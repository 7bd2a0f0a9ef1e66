"""The lessons that pages show: those of the series, and the short chain of the theory page."""

from tools import series

from .shell import ROOT


def load() -> series.Series:
    """The series at the root, its lessons followed by those of docs/theory. Raises UserError."""
    lessons = series.load(ROOT)
    if (ROOT / "docs" / "theory" / "lessons.toml").exists():
        lessons.lessons.update(series.load(ROOT / "docs" / "theory").lessons)
    return lessons

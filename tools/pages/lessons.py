"""The lessons that pages show: those of the series, and the short chains that pages have."""

from tools import series

from .shell import ROOT


def load() -> series.Series:
    """The series at the root, its lessons followed by those of docs/*. Raises UserError."""
    return series.load_all(ROOT)

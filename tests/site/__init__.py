"""Tests of the finished site in docs/_build/html: `make docs`, then `pytest -m site`."""

from pathlib import Path

from tests.processes import ROOT

SITE = ROOT / "docs" / "_build" / "html"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pages(containing: str = "") -> list[str]:
    """The site's pages, in order, whose HTML has a text; [] if the site is not built."""
    return [
        path.relative_to(SITE).as_posix()
        for path in sorted(SITE.rglob("*.html"))
        if containing in path.read_text(encoding="utf-8")
    ]


def built(names: list) -> list:
    """A test's parameters; without a site, one name that says so."""
    return names or [Path("not built: run make docs")]

"""Tests of the finished site in docs/_build/html: `make docs`, then `pytest -m site`."""

from tests.processes import ROOT

SITE = ROOT / "docs" / "_build" / "html"


def pages(containing: str = "") -> list[str]:
    """The site's pages, in order, whose HTML has a text; [] if the site is not built."""
    return [
        path.relative_to(SITE).as_posix()
        for path in sorted(SITE.rglob("*.html"))
        if containing in path.read_text(encoding="utf-8")
    ]

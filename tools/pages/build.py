"""Build the site in docs/_build: `make docs`.

A change in docs/pages leads to a new page; after any other change, or if the last build was killed
or failed, all pages are made anew. So no page shows old files, and no directive has to say which
files it read. All pages are written each time, because each shows the titles of the others.
"""

import hashlib
import shutil

from tools import series

from .record import book
from .shell import ROOT

BUILT = ROOT / "docs" / "_build"
SERIES = ROOT / "docs" / "series"  # sphinx-gallery makes it
MADE_FROM = BUILT / "made-from"  # the hash of what the last build used; only after a complete one


def build(_options=None) -> int:
    """Returns the status of sphinx. Raises UserError if a recording does not hold."""
    from sphinx.cmd.build import main

    book().check()  # here, because Sphinx would add a traceback
    now = _hash()
    last = MADE_FROM.read_text() if MADE_FROM.exists() else None
    MADE_FROM.unlink(missing_ok=True)
    if last != now:
        for folder in (SERIES, BUILT / "doctrees", BUILT / "html"):
            shutil.rmtree(folder, ignore_errors=True)
    for builder, folder in (("html", "html"), ("text", "html/text")):
        words = ["-W", "--keep-going", "-a", "-q", "-d", str(BUILT / "doctrees"), "-b", builder]
        if status := main([*words, str(ROOT / "docs"), str(BUILT / folder)]):
            return status
    MADE_FROM.write_text(now)
    return 0


def _hash():
    """All files of the project count, of docs/pages only their names."""
    facts, pages = [], ROOT / "docs" / "pages"
    for file in sorted(filter(series.own(ROOT), _files(ROOT))):
        content = b"" if file.parent == pages else file.read_bytes()
        facts.append(f"{file.relative_to(ROOT)} {hashlib.sha256(content).hexdigest()}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _files(folder):
    """The files in a folder, but in no hidden one, nor in what a build or a run made."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            is_made = path == SERIES or path.name in ("_build", "__pycache__")
            if not is_made and path.name[0] != "." and path.name != "tests":
                yield from _files(path)
        else:
            yield path

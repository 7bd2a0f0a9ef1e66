"""How the site is built: `make docs`, which is  sphinx-build -W docs docs/_build/html."""

import hashlib
import os
import shutil
import sys
from importlib.metadata import version as version_of
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

from tools.pages import notebook  # noqa: E402

project = "Distributed PyTorch, step by step"
author = "the authors of this tutorial"
copyright = "the authors; BSD 3-Clause"
html_title = project
language = "en"
extensions = [
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "docs._ext.lesson_diff",
    "docs._ext.run",
    "docs._ext.cells",
    "docs._ext.strip",
    "docs._ext.recipe",
    "docs._ext.table",
    "docs._ext.plain",
]
if (ROOT / "workshop").is_dir():
    extensions.append("docs._ext.exercises")
exclude_patterns = ["_build", "pages", "labs", "theory", "symptoms"]
nitpicky = True
default_role = "code"

# What has run is kept here, each command under a hash of all that it depends on.
os.environ["PAGES_RUNS"] = str(DOCS / "_build" / "runs")
not_run_ceiling = 6

# docs/pages/NAME.py becomes docs/series/NAME.rst, its code cells executed.
sphinx_gallery_conf = {
    "examples_dirs": "pages",
    "gallery_dirs": "series",
    "filename_pattern": r"/\w+\.py$",
    "copyfile_regex": r".*\.rst",
    "image_scrapers": ("docs._ext.pictures.scrape",),
    "capture_repr": (),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "write_computation_times": False,
    "min_reported_time": 10_000,
    "show_signature": False,
    "remove_config_comments": True,
}

# Sphinx reads all pages again when any of this changes: what makes them, and with which torch.
_machinery = [*sorted(DOCS.glob("_ext/*.py")), *sorted(ROOT.glob("tools/*/*.py"))]
MACHINERY = hashlib.sha256(b"".join(file.read_bytes() for file in _machinery)).hexdigest()
MACHINERY += f" torch {version_of('torch')}"

html_theme = "furo"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"  # without one, browsers ask for favicon.ico and get a 404
html_css_files = ["series.css"]
html_js_files = ["series.js"]
html_extra_path = ["_build/extra"]
html_show_sourcelink = False
html_copy_source = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
html_theme_options = {
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
    "light_css_variables": {"color-code-background": "#f5f7f9"},
    "dark_css_variables": {"color-code-background": "#1b1f24"},
}
copybutton_exclude = ".linenos, .gp, .go, del, .twin"


def copy_scripts():
    """The scripts as files of the site, for the links above the diffs."""
    target = DOCS / "_build" / "extra" / "scripts"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file in ROOT.glob("*.py"):
        shutil.copy(file, target)
    without = shutil.ignore_patterns("__pycache__")
    for folder in ROOT.glob("mingpt"):
        shutil.copytree(folder, target / folder.name, ignore=without)
    for name in ("labs", "theory", "symptoms"):
        shutil.copytree(DOCS / name, target / "docs" / name, ignore=without)


def setup(app):
    """sphinx-gallery's checksum of a page knows the page alone: forget it when anything else that
    the page's code cells may read has changed. What runs long is kept by PAGES_RUNS anyway."""
    patterns = ("*.py", "mingpt/*.py", "lessons.toml", "docs/*.py", "docs/_ext/*.py",
                "docs/labs/*.py", "docs/theory/*", "docs/symptoms/*.py", "tools/pages/*.py",
                "tools/series/*.py", "workshop/**/*.py", "workshop/*.toml")
    files = [file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()]
    facts = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()
    mark = DOCS / "_build" / "facts"
    if not mark.exists() or mark.read_text() != facts:
        for checksum in (DOCS / "series").glob("*.md5"):
            checksum.unlink()
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(facts)
    pages = {page.stem for page in DOCS.glob("pages/*")}
    for made in (DOCS / "series").glob("*.*"):
        if made.is_file() and made.name.partition(".")[0] not in pages:
            made.unlink()  # of a page that is no more
    copy_scripts()
    notebook.setup(app)
    app.add_config_value("machinery", MACHINERY, "env")

"""How the site is built: `make docs`, which is  sphinx-build -W docs docs/_build/html.

tools/pages/build.py decides what of the last build can stay.
"""

import os
import shutil
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

from tools.pages import notebook, runs, shell  # noqa: E402
from tools.series import own  # noqa: E402

project = "Distributed PyTorch, step by step"
author = "the authors of this tutorial"
copyright = "the authors; BSD 3-Clause"
html_title = project
language = "en"
repository = ""  # such as https://github.com/you/name; if empty, no page links to it
extensions = [
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "docs._ext.lesson_diff",
    "docs._ext.run",
    "docs._ext.fold",
    "docs._ext.cells",
    "docs._ext.figures",
    "docs._ext.recipe",
    "docs._ext.entries",
    "docs._ext.lists",
    "docs._ext.around",
    "docs._ext.terminal",
    "docs._ext.torch_role",
    "docs._ext.page_end",
    "docs._ext.doctor_rules",
]
exclude_patterns = ["_build"]
include_patterns = ["series/**", *(file.name for file in filter(own(ROOT), DOCS.glob("*.rst")))]
nitpicky = True
default_role = "code"
smartquotes = False  # readers search for error texts as they are

os.environ["PAGES_BUILD"] = "1"  # code cells show recordings: docs/lab.py
not_run_ceiling = 6
not_measured_ceiling = 4

# docs/pages/NAME.py becomes docs/series/NAME.rst, its code cells executed. sphinx-gallery would
# take every file of the folder for a page: it gets a copy that has the project's own only.
sphinx_gallery_conf = {
    "examples_dirs": "_build/own/docs/pages",
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
suppress_warnings = ["sphinx_gallery.space_in_filename"]  # it also warns of a clone's path

html_theme = "furo"
templates_path = ["_templates"]
html_static_path = [str(file) for file in filter(own(ROOT), DOCS.glob("_static/*"))]
html_favicon = "_static/favicon.svg"  # without one, browsers ask for favicon.ico and get a 404
html_css_files = [
    "series.css", "figures.css", "front.css", "page_end.css", "entries.css", "sheet.css",
]  # fmt: skip
html_js_files = ["series.js", ("terminal.js", {"defer": "defer"}), "entries.js", "search.js"]
html_extra_path = ["_build/extra"]  # the scripts, for the links above the diffs
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


def setup(app):
    for folder, patterns in {
        "own": ["docs/pages/*.*"],
        "extra/scripts": [
            "*.py",
            "mingpt/*",
            "parallel/**/*",
            "beyond/*",
            "docs/labs/*",
            "docs/theory/*",
            "docs/port/*",
            "docs/symptoms/*",
        ],
    }.items():
        shutil.rmtree(DOCS / "_build" / folder, ignore_errors=True)
        shell.copy(patterns, DOCS / "_build" / folder)
    pages = {page.name for page in runs.pages(ROOT)}
    for page in DOCS.glob("_build/own/docs/pages/beyond_*"):  # a lesson's page goes with it
        if page.name not in pages:
            page.unlink()
    notebook.setup(app)
    is_own = own(ROOT)
    for pattern in [*shell.COPIED, "docs/pages/*.py", "docs/pages/*.rst"]:
        for file in ROOT.glob(pattern):
            source = file.suffix in (".py", ".rst", ".sh", ".toml") and file.is_file()
            if source and not is_own(file):
                print(f"left out, since git does not track it: {file}", file=sys.stderr)

"""A small site, built by the real sphinx with a copy of the project's directives."""

import re
import shutil
import sys
import time
from pathlib import Path

from tests.processes import ROOT
from tools import processes, series
from tools.processes import environment
from tools.series import stages

CONF = """\
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]
project = "A small site"
extensions = ["docs._ext.lesson_diff", "docs._ext.run"]
exclude_patterns = ["_build"]
html_theme = "basic"
not_run_ceiling = 1
not_measured_ceiling = 1
"""
INDEX = """\
Index
=====

.. toctree::
   :glob:

   pages/*
"""


class Site:
    """Two lessons with a page each, in a folder that holds all they need."""

    def __init__(self, root: Path, conf: str | None = CONF):
        self.root, self.docs = root, root / "docs"
        for folder in ("docs/_ext", "doctor", "tools", "workshop"):
            ignored = shutil.ignore_patterns("__pycache__", "bench")
            shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
        for file in ("single_gpu.py", "multigpu.py", "utils.py", "guard.py", "docs/lab.py"):
            shutil.copy(ROOT / file, root / file)
        manifest = (ROOT / "lessons.toml").read_text(encoding="utf-8")
        self.write("lessons.toml", manifest.partition("\n[multigpu_torchrun]")[0] + "\n")
        self.lesson = series.load(root)["multigpu"]
        if conf:
            self.write("docs/conf.py", conf)
        self.write("docs/index.rst", INDEX)
        self.page = f"docs/pages/{self.lesson.page}.rst"
        self.write(self.page, page_of(self.lesson))

    def read(self, file):
        return (self.root / file).read_text(encoding="utf-8")

    def write(self, file, text):
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def edit(self, file, old, new):
        """Replace the one place where `file` has `old`."""
        text = self.read(file)
        assert text.count(old) == 1, f"{file} has {text.count(old)} of {old!r}"
        self.write(file, text.replace(old, new))

    def add(self, file, text):
        self.write(file, self.read(file) + text)

    def python(self, *words):
        """Exit status and output of a Python command in the folder of the site."""
        env = environment(PYTHONDONTWRITEBYTECODE="1")
        env.pop("PYTHONPATH", None)
        ran = processes.run([sys.executable, *words], cwd=self.root, env=env)
        return ran.status, re.sub(r"\x1b\[[\d;]*m", "", ran.out)

    def make_docs(self):
        """Exit status and output of what `make docs` runs."""
        return self.python("-m", "tools.pages", "build")

    def record(self, *words):
        """Exit status and output of `python -m tools.pages record`."""
        return self.python("-m", "tools.pages", "record", *words)

    def build(self, builder="dummy"):
        """Exit status and output of `sphinx -W`, which builds in docs/_build/<builder>."""
        return self.python("-m", "sphinx", "-W", "-b", builder, "docs", f"docs/_build/{builder}")

    def built(self, file):
        return self.read(f"docs/_build/{file}")

    def line_of(self, edit):
        """A line that only this edit adds, and that its script has once."""
        text = (self.root / self.lesson.file).read_text(encoding="utf-8")
        lines = [line.text for line in edit.lines if line.sign == "+" and len(line.text) > 20]
        return next(line for line in lines if text.count(line) == 1)


def page_of(lesson):
    """The page of a lesson: each edit under its title, with a word of prose; and its stages run."""
    sections = [(edit.title, diff_of(edit)) for edit in lesson.edits]
    text = f"{lesson.name}\n{'=' * 40}\n\n"
    text += "\n".join(f"{title}\n{'-' * 60}\n\n{diff}" for title, diff in sections)
    names = [*(stage.name for stage in stages.of(lesson)[1:-1]), lesson.file]
    return text + run_of(*(f"echo {name}" for name in names))


def end_of(page, **options):
    """The last section of a page."""
    facts = {"next": ":doc:`/index`", **options}
    head = "".join(f"   :{name}: {value}\n" for name, value in facts.items())
    folds = "".join(f"   .. fold:: Why {n}?\n\n      Because.\n\n" for n in range(3))
    title = f"\nWhat you can do now\n{'-' * 40}\n\n"
    return f"{title}.. page-end:: {page}\n{head}\n   You can now stop.\n\n{folds}"


def diff_of(edit, prose="   Because.\n"):
    return (
        f".. lesson-diff:: {edit.lesson.name}\n   :edit: {edit.name}\n"
        f"   :confirmed: {stages.after(edit).fingerprint}\n\n{prose}\n"
    )


def run_of(*lines, expect=".", **options):
    """The directive that runs `lines`."""
    facts = {"expect": expect, **options}
    head = "".join(f"   :{name}: {value}\n" for name, value in facts.items())
    return f"\n.. run::\n{head}\n" + "".join(f"   {line}\n" for line in lines)


def fails(site, *messages):
    """Build a broken site. Returns what sphinx printed."""
    status, output = site.build()
    assert status == 1, output
    for message in messages:
        assert message in output, f"nobody says {message!r}:\n{output}"
    return output


def warnings(output):
    return sorted(line for line in output.splitlines() if re.search("WARNING|ERROR", line))


def wait_until(true, limit=60):
    end = time.monotonic() + limit
    while not true():
        assert time.monotonic() < end, f"not true after {limit} s"
        time.sleep(0.1)

"""Notebooks of the workshop's exercises, one for each lesson, for the page to offer.

A cell writes the learner's script, the next checks it: the same commands as in a terminal.
"""

from pathlib import Path

import jupytext

from workshop.exercises import exercises
from workshop.scenarios import LESSONS

FOLDER = "my-notebook-workshop"


def cells(lesson: str) -> str:
    """The notebook of a lesson's exercises, as jupytext's percent format."""
    workshop = f"!{{sys.executable}} -m workshop --dir {FOLDER}"
    parts = [
        f"# %% [markdown]\n# # The workshop: {lesson}\n#\n# Start Jupyter in the folder of the "
        "repository. For each exercise run the first\n# cell, edit the second and run it; the "
        "third tells what is true of your script.",
        "# %%\nimport sys",
    ]
    for one in exercises().values():
        if one.lesson.name == lesson:
            script = f"%%writefile {FOLDER}/{one.name}/{one.file}\n{one.start}".rstrip()
            parts += [
                f"# %% [markdown]\n# ## {one.title}",
                f"# %%\n{workshop} start {one.name}",
                f"# %%\n{script}",
                f"# %%\n{workshop} check {one.name}",
                f"# %%\n{workshop} hint {one.name}",
            ]
    return "\n\n".join(parts) + "\n"


def write(app):
    folder = Path(app.srcdir) / "series"
    folder.mkdir(exist_ok=True)
    for lesson in LESSONS:
        notebook = jupytext.reads(cells(lesson), fmt="py:percent")
        jupytext.write(notebook, folder / f"exercises_{lesson}.ipynb")


def setup(app):
    app.connect("builder-inited", write, priority=600)  # after sphinx-gallery has made its folder
    return {"parallel_read_safe": True, "parallel_write_safe": True}

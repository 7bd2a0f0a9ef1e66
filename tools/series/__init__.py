"""The engine that knows how the lessons derive from each other.

    from tools import series

    lessons = series.load()                    # reads lessons.toml; raises UserError
    lessons = series.load_all()                # docs/*/lessons.toml too
    lesson = lessons["multigpu"]               # a Lesson; UserError lists the known names
    env, argv = lesson.command                 # the documented command, ready for subprocess
    for line in lesson.diff():                 # every changed line: sign, number, text, scope, edit
        ...
    stage = stages.after(lesson.edit("save-once"))  # its script, the diff from the stage before,
                                               # and a fingerprint that prose can keep

Pages, tests, workshop and README ask only this package, so they cannot disagree. It needs only the
standard library (and psutil to run and observe stages), and never imports torch. It caches what it
reads: load again after files have changed.

    source.py     a script, parsed: which definition encloses each line
    diff.py       two scripts compared, definition by definition
    partition.py  which edit has which changed line of a lesson
    model.py      Series, Lesson, Edit
    manifest.py   lessons.toml read and checked; its docstring is the reference for the format
    stages.py     the script that each edit leaves behind: multigpu@3
    launch.py     runs a stage as its page says
    observe.py    whether a stage shows what lessons.toml says; probe.py: what output cannot show
    lint.py       the rules of the series; noise.py: the rules about changes that teach nothing
    sync.py       merges a change in one script into all its descendants
    render.py     diffs, tree and table as text
"""

from tools.files import own

from .diff import near_changes
from .manifest import load, load_all
from .model import Series

__all__ = ["Series", "load", "load_all", "near_changes", "own"]

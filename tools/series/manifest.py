"""lessons.toml, read and checked: which script derives from which, and by what edits.

    [multigpu]                # a lesson; its parent is above it
    title  = "…"              # what it adds, in a few words
    parent = "single_gpu"     # a root has no parent, budget or edits; others have all three
    budget = 40               # the most lines it may add and remove, as Line.counted counts
    file   = "multigpu.py"    # default: NAME.py, or beyond/NAME.py if there is one
    page   = "2_multigpu"     # the page that explains it; default: as the file, beyond_NAME
    edit_budget = 20          # optional: the most lines that one edit may change
    observe = "--steps 20"    # optional: arguments with which stages are observed; {root} is ours
    renames = { epoch = "step" }  # optional: names of the parent that mean something new here

    [[multigpu.edit]]         # a named group of changed lines; edits are in the order of the page
    name   = "distribute-the-data"
    title  = "Distributing input data"
    scopes = ["prepare_dataloader", { in = "Trainer._run_epoch", match = "set_epoch" }]
    shows  = "…"              # what the script prints after this edit, and not before it; and/or
    lacks  = "…"              # what it prints before this edit, and no longer after it; and/or
    same   = 'loss (\\S+)'    # what the group finds last is the same in two runs; or `differs`; or
    lowers = 'loss (\\S+)'    # it is a number, lower after this edit than before
    args   = "--dropout 0.2"  # optional: arguments of these runs, besides the lesson's `observe`
    again  = "--other 3"      # optional: those of a second run; its output is appended
    fault  = "kill"           # optional: what goes wrong in the first; tools/series/observe.py
    options = ["precision"]   # optional: options of the script that have no effect before this edit
    page   = "7_robust"       # optional: the page that explains it, if not the lesson's

    [[multigpu.edit.interim]] # optional: lines of no script in the tree, but of some stages
    in     = "Trainer.train"
    before = "return"         # they go above the first line of `in` in which this is found
    text   = "        pass"   # one line, or several
    until  = "save-once"      # the later edit that removes them

These patterns are regular expressions (`.` matches line breaks, `^` and `$` at each line), searched
in what the stage prints under the probe. If all edits of a lesson have one of them, the lesson has
stages: after each edit, in this order, there is a script that runs.

A scope takes the changed lines of a definition (names: Source.scopes): those in which the regular
expression `match` is found or, without one, all that no match takes. The edits of a lesson must
take each changed line exactly once. Unknown keys are errors. The documented command of a lesson is
in its docstring.
"""

import re
import tomllib
from pathlib import Path

from tools.errors import UserError

from .model import Edit, Interim, Lesson, Observation, Scope, Series
from .source import Problem

MANIFEST = "lessons.toml"


def load(root: Path | str | None = None) -> Series:
    """Read the manifest in `root`, by default that of this package's repository.

    Raises OSError if it cannot be read, UserError (of a Problem) for the first thing that is wrong
    with it. The scripts are read when first asked for.
    """
    root = Path(root or Path(__file__).parents[2])
    text = (root / MANIFEST).read_text(encoding="utf-8")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # the message has the line
        raise UserError(Problem(MANIFEST, 1, f"not valid TOML: {error}")) from None
    return _Reader(root, text).series(tables)


def load_all(root: Path | str | None = None) -> Series:
    """The series in `root`, its lessons followed by those of docs/*/lessons.toml, the chains of
    single pages. Raises UserError."""
    series = load(root)
    for manifest in sorted(series.root.glob(f"docs/*/{MANIFEST}")):
        series.lessons.update(load(manifest.parent).lessons)
    return series


_LESSON = {"title"}
_CHILD = {"title", "parent", "budget", "edit"}
_OF_LESSON = {"file", "page", "renames", "edit_budget", "observe"}
_EDIT = {"name", "title", "scopes"}
_PATTERNS = {"shows", "lacks", "same", "differs", "lowers"}
_OBSERVATION = {*_PATTERNS, "args", "again", "fault"}
_OF_EDIT = {*_OBSERVATION, "interim", "options", "page"}
_INTERIM = {"in", "before", "text", "until"}
_SCOPE = {"in", "match"}


class _Reader:
    """Turns tables into objects, and reports each mistake with its line in the text."""

    def __init__(self, root, text):
        self.root, self.text = root, text
        self.lessons = {}
        self.where, self.nth = "", 0  # the header of the table at work, and which of that name

    def series(self, tables) -> Series:
        for name, table in tables.items():
            self.lessons[name] = self.lesson(name, table)
        return Series(self.root, self.lessons)

    def lesson(self, name, table) -> Lesson:
        self.where, self.nth = name, 0
        self.check(table, _CHILD if "parent" in table else _LESSON, _OF_LESSON)
        parent = table.get("parent")
        if parent is not None and parent not in self.lessons:
            known = ", ".join(self.lessons) or "none"
            self.fail(f"parent {parent!r} is no lesson above this one; above are: {known}")
        beyond = f"beyond/{name}.py"
        file = table.get("file", beyond if (self.root / beyond).exists() else f"{name}.py")
        page = table.get("page", file.removesuffix(".py").replace("/", "_"))
        lesson = Lesson(
            self.root, name, file, table["title"], page, self.lessons.get(parent),
            table.get("budget"), self.line, table.get("edit_budget"),
            self.words(table.get("observe", "")), table.get("renames", {}),
        )  # fmt: skip
        edits = table.get("edit", [])
        for nth, edit in enumerate(edits):
            self.where, self.nth = f"{name}.edit", nth
            lesson.edits.append(self.edit(lesson, edit, edits[nth + 1 :]))
        return lesson

    def edit(self, lesson, table, below) -> Edit:
        self.check(table, _EDIT, _OF_EDIT)
        name = table["name"]
        if name in [edit.name for edit in lesson.edits]:
            self.fail(f"name {name!r} is taken by an edit above")
        return Edit(
            lesson, name, table["title"], [self.scope(scope) for scope in table["scopes"]],
            self.line, self.observation(table),
            [self.interim(one, below) for one in table.get("interim", [])],
            table.get("options", []), table.get("page", lesson.page),
        )  # fmt: skip

    def observation(self, table) -> Observation | None:
        known = {key: table[key] for key in _OBSERVATION & table.keys()}
        for key in _PATTERNS & known.keys():
            known[key] = self.pattern(key, known[key], re.DOTALL | re.MULTILINE)
        for key in {"args", "again"} & known.keys():
            known[key] = self.words(known[key])
        return Observation(**known) if _PATTERNS & known.keys() else None

    def interim(self, table, below) -> Interim:
        self.check(table, _INTERIM)
        if table["until"] not in [edit.get("name") for edit in below]:
            self.fail(f"until {table['until']!r} is no edit below")
        before = self.pattern("before", table["before"])
        return Interim(table["in"], before, table["text"].strip("\n"), table["until"])

    def words(self, text) -> tuple[str, ...]:
        return tuple(word.replace("{root}", str(self.root)) for word in text.split())

    def scope(self, value) -> Scope:
        if isinstance(value, str):
            return Scope(value)
        self.check(value, _SCOPE)
        return Scope(value["in"], self.pattern("match", value["match"]))

    def pattern(self, key, text, flags=0) -> re.Pattern:
        try:
            return re.compile(text, flags)
        except re.error as error:
            self.fail(f"{key} {text!r} is not a regular expression: {error}")

    def check(self, table, required, optional=frozenset()):
        for key in sorted(table.keys() - required - optional):
            names = ", ".join(sorted(required | optional))
            self.fail(f"unknown key {key!r}: correct or drop it; known: {names}")
        for key in sorted(required - table.keys()):
            self.fail(f"no {key!r}: add it")

    def fail(self, message):
        raise UserError(Problem(MANIFEST, self.line, f"[{self.where}] {message}"))

    @property
    def line(self) -> int:
        """The line of the table's header. TOML has other spellings: line 1 for those."""
        header = rf"^[ \t]*\[+{re.escape(self.where)}\]"
        starts = [found.start() for found in re.finditer(header, self.text, re.MULTILINE)]
        return self.text.count("\n", 0, starts[self.nth]) + 1 if self.nth < len(starts) else 1

"""Commands and what they printed, and a check that a page shows no others.

    .. run::
       :expect: loss 0\\.028
       :show: 3 2

       python multigpu.py 50 10

The body is shell lines. `python -m tools.pages record` runs them one after the other in a copy of
the scripts; the page shows each with its recorded output and time. `{multigpu}` is the documented
command of a lesson. A recording that is missing or does not hold any more is an error.

    :expect:    a regular expression that the output must contain; required
    :status:    exit status of the last line, 0 by default; the others must end with 0
    :show:      how many lines of output to show from its beginning and its end; by default all
    :lines:     the first and the last of the shell lines to show, counted from 1; by default all.
                Blocks of the same lines share one run, and each can show a part of it
    :mark:      a regular expression: output lines that match it are highlighted, and always shown
    :alone:     record it when nothing else runs, because it measures time
    :timeout:   seconds for each line, 300 by default: a bound on hangs, not a measure of speed
    :elsewhere: why it was recorded once, by `record PAGE --elsewhere`: it needs a GPU, or an hour.
                It stays valid when the files change on which it depends. If it is missing, the
                page says that it was not measured yet

Any other shell block is an error, unless it is the body of

    .. not-run:: the reason

conf.py says how many of these there may be, `not_run_ceiling`, and how many that are not measured
yet, `not_measured_ceiling`. Inline code such as ``python …`` must be part of a command that some
page runs.
"""

import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexers import BashSessionLexer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools.errors import UserError
from tools.pages.directives import commands
from tools.pages.record import book
from tools.pages.runs import Block, folded

from .lesson_diff import lessons

logger = logging.getLogger(__name__)
SHELLS = {"bash", "console", "pycon-shell", "sh", "shell", "shell-session", "zsh"}
COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=\S* +)*"
    r"(?:python3?|torchrun|make|pip|uv|bash|srun|sbatch|mpirun|qsub|kubectl|ssh|kill) +\S"
)
OPTIONS = "expect", "status", "show", "lines", "mark", "alone", "timeout", "elsewhere"


class Run(SphinxDirective):
    option_spec: ClassVar = dict.fromkeys(OPTIONS, directives.unchanged)
    has_content = True

    def run(self):
        lines = lines_of(self)
        if not lines or "expect" not in self.options:
            raise self.error("run needs shell lines and :expect:, a pattern of their output")
        if book().is_not_measured(lines):
            note(self.env, "commands", *lines)
            note(self.env, "not_measured", "\n".join(lines))
            shown = Block(lines, self.options).part(lines)
            return [not_run(shown, f"not measured yet: {book().runs[lines].elsewhere}")]
        recording = recorded(self, lines)
        part = Block(lines, self.options)
        if problem := part.problem(recording.ran):
            raise self.error(problem)
        text = part.shown(recording.ran)
        block = ran(text)
        if part.mark:
            block["highlight_args"] = {"hl_lines": part.marked(text)}
        shown = part.part(recording.ran)
        notes = [f"exit status {shown[-1].status}"] if shown[-1].status else []
        if times := " + ".join(f"{one.seconds:.1f}" for one in shown if one.seconds >= 0.1):
            notes.append(f"{times} s")
        if recording.elsewhere:
            notes.append(f"{recording.date}, {recording.machine} ({recording.elsewhere})")
        return [run_block(block, ", ".join(notes))]


class NotRun(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        lines = lines_of(self)
        note(self.env, "not_run", "\n".join(lines))
        return [not_run(lines, f"not run here: {self.arguments[0]}")]


def lines_of(directive):
    return tuple(commands("\n".join(directive.content), lessons()))


def not_run(lines, remark):
    block = ran("\n".join(f"$ {folded(line)}" for line in lines))
    return run_block(block, remark, "not-run")


def recorded(directive, lines):
    """The recording of these lines; the directive fails if there is none that holds."""
    note(directive.env, "commands", *lines)
    try:
        return book().kept.find(lines)
    except UserError as error:
        raise directive.error(str(error)) from None


def ran(text, language="console", classes=("run",)):
    """A block that may show commands, because they were recorded or tests run them."""
    return nodes.literal_block(text, text, language=language, classes=[*classes], ran=True)


COLUMNS = re.compile(r"(?: {2,}[\w.,%]+(?: \|)?){3}")  # of a table, whose lines must not wrap


def run_block(block, remark, *classes):
    remark = nodes.paragraph("", remark, classes=["run-note"])
    if 3 * len(COLUMNS.findall(block.astext())) > block.astext().count("\n"):
        classes += ("columns",)
    return nodes.container("", block, remark, classes=["run-block", *classes])


def note(env, kind, *texts):
    """Keep what a page has of a kind: "commands", "not_run" or "inline"."""
    env.metadata[env.docname].setdefault(kind, []).extend(texts)


def noted(env, kind):
    """What each page has of a kind. Sphinx forgets it when it reads the page anew."""
    return {docname: facts.get(kind, []) for docname, facts in env.metadata.items()}


def check_blocks(app, doctree):
    for block in doctree.findall(nodes.literal_block):
        if not block.get("ran") and is_shell(block):
            logger.warning(
                "a shell block that nobody ran: use the directive run, or not-run: %s",
                block.astext()[:80], location=block,
            )  # fmt: skip
    for literal in doctree.findall(nodes.literal):
        text = " ".join(literal.astext().split())
        if not literal.get("ran") and COMMAND.match(text):
            note(app.env, "inline", text)


def is_shell(block):
    """Decide by the block's language or, if it has none, by its text."""
    language = str(block.get("language", "default")).lower()
    lines = block.astext().split("\n") if language in ("default", "none", "text") else []
    in_error = isinstance(block.parent, nodes.system_message)
    if in_error or "sphx-glr-script-out" in block["classes"]:
        lines = []
    looks = any(COMMAND.match(line.strip().removeprefix("$ ")) for line in lines)
    return language in SHELLS or looks


def check_all(app, env):
    known = [lesson.run for lesson in lessons()]
    for kind in ("commands", "not_run"):
        known += [text for texts in noted(env, kind).values() for text in texts]
    for docname, texts in noted(env, "inline").items():
        for text in texts:
            whole_words = re.compile(rf"(?<![\w./-]){re.escape(text)}(?![\w./-])")
            if not any(map(whole_words.search, known)):
                message = "``%s`` is no part of a command that a page runs"
                logger.warning(message, text, location=docname)
    for kind in ("not_run", "not_measured"):
        number, ceiling = sum(map(len, noted(env, kind).values())), app.config[f"{kind}_ceiling"]
        if number > ceiling:
            message = "%d blocks are marked %s: no more than %d may be"
            logger.warning(message, number, kind.replace("_", "-"), ceiling)


def say_when(app, doctree):
    """At the end of a page, when and on what its commands were recorded."""
    page = Path(app.env.docname).name
    if app.env.docname == "series/index":  # sphinx-gallery's own, without commands
        return
    machines = {}
    for run in book().runs.values():
        one = book().kept.get(run.lines) if page in run.pages else None
        if one and not one.elsewhere:
            machines.setdefault(one.machine, []).append(one.date)
    for machine, dates in machines.items():
        days = " to ".join(sorted({min(dates), max(dates)}))
        when = f"The commands of this page were recorded on {days}: {machine}."
        doctree += nodes.paragraph("", when, classes=["run-note"])


class Session(BashSessionLexer):
    """Only "$ " is a prompt, because a line of output may begin with # or >."""

    _ps1rgx = re.compile(r"^(\$ )(.*\n?)")
    _ps2 = "\0"


def setup(app):
    app.add_lexer("console", Session)
    app.add_config_value("not_run_ceiling", 0, "env", types=[int])
    app.add_config_value("not_measured_ceiling", 0, "env", types=[int])
    app.add_directive("run", Run)
    app.add_directive("not-run", NotRun)
    app.connect("doctree-read", check_blocks)
    app.connect("doctree-read", say_when)
    app.connect("env-check-consistency", check_all)

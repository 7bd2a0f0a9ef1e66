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
                It stays valid when the files change on which it depends

Any other shell block is an error, unless it is the body of

    .. not-run:: the reason

There may be at most `not_run_ceiling` of those (conf.py). Inline code such as ``python …`` must be
part of a command that some page runs.
"""

import functools
import re
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexers import BashSessionLexer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools.errors import UserError
from tools.pages import shell
from tools.pages.directives import commands
from tools.pages.recordings import Recordings
from tools.pages.runs import Block, folded, of_all

from .lesson_diff import lesson_code, lessons

logger = logging.getLogger(__name__)
SHELLS = {"bash", "console", "pycon-shell", "sh", "shell", "shell-session", "zsh"}
COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=\S* +)*"
    r"(?:python3?|torchrun|make|pip|uv|bash|srun|sbatch|mpirun|qsub|kubectl|ssh|kill) +\S"
)


def pattern(text):
    try:
        re.compile(text or "")
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return directives.unchanged_required(text)


def two_numbers(text):
    _head, _tail = map(int, (text or "").split())
    return text


class Run(SphinxDirective):
    option_spec: ClassVar = {
        "expect": pattern,
        "status": int,
        "show": two_numbers,
        "lines": two_numbers,
        "mark": pattern,
        "alone": directives.flag,
        "timeout": float,
        "elsewhere": directives.unchanged_required,
    }
    has_content = True

    def run(self):
        lines = tuple(commands("\n".join(self.content), lessons()))
        if not lines or "expect" not in self.options:
            raise self.error("run needs shell lines and :expect:, a pattern of their output")
        recording = recorded(self, lines)
        part = Block(lines, self.options)
        if problem := part.problem(recording.ran):
            raise self.error(problem)
        text = part.shown(recording.ran)
        block = nodes.literal_block(text, text, language="console", classes=["run"], ran=True)
        if part.mark:
            block["highlight_args"] = {"hl_lines": part.marked(text)}
        ran = part.part(recording.ran)
        notes = [f"exit status {ran[-1].status}"] if ran[-1].status else []
        if times := " + ".join(f"{one.seconds:.1f}" for one in ran if one.seconds >= 0.1):
            notes.append(f"{times} s")
        if recording.elsewhere:
            notes.append(f"{recording.date}, {recording.machine} ({recording.elsewhere})")
        note = nodes.paragraph("", ", ".join(notes), classes=["run-note"])
        return [nodes.container("", block, note, classes=["run-block"])]


@functools.cache
def recordings():
    """The recordings, as they are when the build begins: a build is one process."""
    return Recordings(shell.ROOT)


@functools.cache
def all_runs():
    return of_all(shell.ROOT)


def recorded(directive, lines):
    """The recording of a directive's lines; the directive fails if there is none that holds."""
    env = directive.env
    env.commands.setdefault(env.docname, []).extend(lines)
    try:
        return recordings().find(lines)
    except UserError as error:
        raise directive.error(str(error)) from None


class NotRun(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        lines = commands("\n".join(self.content), lessons())
        text = "\n".join(f"$ {folded(line)}" for line in lines)
        block = nodes.literal_block(text, text, language="console", classes=["run"])
        block["ran"] = True
        self.env.not_run.setdefault(self.env.docname, []).append("\n".join(lines))
        note = nodes.paragraph("", f"not run here: {self.arguments[0]}", classes=["run-note"])
        return [nodes.container("", block, note, classes=["run-block", "not-run"])]


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
            app.env.inline.setdefault(app.env.docname, []).append(text)


def is_shell(block):
    """Decide by the block's language or, if it has none, by its text."""
    language = str(block.get("language", "default")).lower()
    lines = block.astext().split("\n") if language in ("default", "none", "text") else []
    made = isinstance(block.parent, (lesson_code, nodes.system_message))
    ours = made or "sphx-glr-script-out" in block["classes"]
    looks = any(COMMAND.match(line.strip().removeprefix("$ ")) for line in lines)
    return language in SHELLS or (looks and not ours)


def check_all(app, env):
    known = [line for lines in env.commands.values() for line in lines]
    known += [lesson.run for lesson in lessons()]
    known += [text for texts in env.not_run.values() for text in texts]
    for docname, texts in env.inline.items():
        for text in texts:
            whole_words = re.compile(rf"(?<![\w./-]){re.escape(text)}(?![\w./-])")
            if not any(map(whole_words.search, known)):
                message = "``%s`` is no part of a command that a page runs"
                logger.warning(message, text, location=docname)
    number, ceiling = sum(map(len, env.not_run.values())), app.config.not_run_ceiling
    logger.info("%d shell blocks are not run; the ceiling is %d", number, ceiling)
    if number > ceiling:
        logger.warning("%d blocks are marked not-run: no more than %d may be", number, ceiling)


def say_when(app, doctree):
    """At the end of a page, when and on what its commands were recorded."""
    page = Path(app.env.docname).name
    machines = {}
    for run in all_runs().values():
        one = recordings().get(run.lines) if page in run.pages else None
        if one and not one.elsewhere:
            machines.setdefault(one.machine, []).append(one.date)
    for machine, dates in machines.items():
        days = " to ".join(sorted({min(dates), max(dates)}))
        note = f"The commands of this page were recorded on {days}: {machine}."
        doctree += nodes.paragraph("", note, classes=["run-note"])


def start(app):
    for name in ("commands", "not_run", "inline"):
        if not hasattr(app.env, name):
            setattr(app.env, name, {})


def purge(app, env, docname):
    for kept in (env.commands, env.not_run, env.inline):
        kept.pop(docname, None)


class Session(BashSessionLexer):
    """Only "$ " is a prompt, because a line of output may begin with # or >."""

    _ps1rgx = re.compile(r"^(\$ )(.*\n?)")
    _ps2 = "\0"


def setup(app):
    app.add_lexer("console", Session)
    app.add_config_value("not_run_ceiling", 0, "env", types=[int])
    app.add_directive("run", Run)
    app.add_directive("not-run", NotRun)
    app.connect("builder-inited", start)
    app.connect("env-purge-doc", purge)
    app.connect("doctree-read", check_blocks)
    app.connect("doctree-read", say_when)
    app.connect("env-check-consistency", check_all)

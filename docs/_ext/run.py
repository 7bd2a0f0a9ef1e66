"""Commands that the build runs for a page, and a check that the page shows no others.

    .. run::
       :expect: loss 0\\.028
       :show: 3 2

       python multigpu.py 50 10

The body is shell lines. The build runs them one after the other in a copy of the scripts, and the
page shows each with its output and time. `{multigpu}` is the documented command of a lesson.

    :expect:   a regular expression that the output must contain; required
    :status:   exit status of the last line, 0 by default; the others must end with 0
    :show:     how many lines of output to show from its beginning and its end; by default all
    :lines:    the first and the last of the shell lines to show, counted from 1; by default all.
               Blocks of the same lines share one run, and each can show a part of it
    :mark:     a regular expression: output lines that match it are highlighted, and always shown
    :alone:    run it when nothing else runs, because it measures time
    :timeout:  seconds for each line, 300 by default: a bound on hangs, not a measure of speed

Any other shell block is an error, unless it is the body of

    .. not-run:: the reason

There may be at most `not_run_ceiling` of those (conf.py). Inline code such as ``python …`` must be
part of a command that some page runs.
"""

import ast
import contextlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from pygments.lexers import BashSessionLexer
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from tools.errors import UserError
from tools.pages import shell
from tools.pages.directives import commands, find, prose
from tools.series import own

from .lesson_diff import lesson_code, lessons

logger = logging.getLogger(__name__)
LIMIT = 300
AT_ONCE = 3  # commands; each is about two processes, and waits half of the time
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
    head, tail = map(int, (text or "").split())
    return head, tail


class Run(SphinxDirective):
    option_spec: ClassVar = {
        "expect": pattern,
        "status": int,
        "show": two_numbers,
        "lines": two_numbers,
        "mark": pattern,
        "alone": directives.flag,
        "timeout": float,
    }
    has_content = True

    def run(self):
        lines = commands("\n".join(self.content), lessons())
        if not lines or "expect" not in self.options:
            raise self.error("run needs shell lines and :expect:, a pattern of their output")
        self.env.commands.setdefault(self.env.docname, []).extend(lines)
        limit = self.options.get("timeout", LIMIT)
        try:
            ran = shell.run(
                lines, limit, cache_folder(), lambda ran: not wrong(lines, ran, self.options)
            )
        except UserError as error:
            raise self.error(str(error)) from None
        if problem := wrong(lines, ran, self.options):
            raise self.error(problem)
        block = nodes.literal_block(language="console", classes=["run"])
        block["ran"] = True
        first, last = self.options.get("lines", (1, len(ran)))
        ran = ran[first - 1 : last]
        text = "\n".join(self.shown(one) for one in ran)
        block += nodes.Text(text)
        if mark := self.options.get("mark"):
            marked = [
                number for number, line in enumerate(text.split("\n"), 1)
                if re.search(mark, line) and not line.startswith(("$ ", "    "))
            ]  # fmt: skip
            if not marked:
                raise self.error(f"no line shown matches {mark!r}:\n{text}")
            block["highlight_args"] = {"hl_lines": marked}
        times = " + ".join(f"{one.seconds:.1f}" for one in ran if one.seconds >= 0.1)
        status = "run when this page was built"
        status += f", exit status {ran[-1].status}" if ran[-1].status else ""
        note = nodes.paragraph(classes=["run-note"])
        note += nodes.Text(f"{status}, {times} s" if times else status)
        return [nodes.container("", block, note, classes=["run-block"])]

    def shown(self, one):
        output = one.output.rstrip("\n").split("\n") if one.output.strip() else []
        head, tail = self.options.get("show", [len(output), 0])
        mark = self.options.get("mark", "(?!)")

        def is_left(at):
            return head <= at < len(output) - tail and not re.search(mark, output[at])

        lines = [f"$ {folded(one.line)}"]
        for left, run in groupby(range(len(output)), is_left):
            run = [output[at] for at in run]
            lines += [f"⋮ {len(run)} more lines"] if left and len(run) > 1 else run
        return "\n".join(lines)


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


def folded(line, width=78):
    """A shell line, continued by backslashes between its words where it is long."""
    lines = [""]
    for word in re.findall(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""", line):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def wrong(lines, ran, options):
    """How a run differs from what its directive says; None if it does not."""
    output = "\n".join(one.output for one in ran)
    wanted = [0] * (len(lines) - 1) + [int(options.get("status", 0))]
    found = [one.status for one in ran]
    if found != wanted:
        return f"exit status {found}, but {wanted} was expected:\n{output}"
    if not re.search(options["expect"], output, re.MULTILINE):
        return f"nothing in the output matches {options['expect']!r}:\n{output}"
    return None


def cache_folder():
    return Path(os.environ["PAGES_RUNS"])


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


def run_ahead(app):
    """Run the commands of all pages first, a few at a time.

    A single one spends half of its time waiting for processes to start and to meet. A failure here
    is only logged: the directive runs the command again, and if that fails too, it is an error.
    """
    bodies = {}
    found = [*Path(app.srcdir).glob("*.rst"), *Path(app.srcdir).glob("pages/*")]
    for page in filter(own(shell.ROOT), found):
        if page.suffix in (".py", ".rst"):
            text = page.read_text(encoding="utf-8")
            for found in find(prose(text) if page.suffix == ".py" else text):
                if found.name == "run":
                    lines = tuple(commands(found.body, lessons()))
                    bodies[lines] = found.options
        if page.suffix == ".py":
            for lines in _in_cells(text):
                bodies.setdefault(lines, {"expect": ""})

    def one(lines, options):
        def right(ran):
            problem = wrong(lines, ran, options)
            if problem:
                logger.info("to be run once more: %s\n%s", "; ".join(lines), problem)
            return not problem

        with contextlib.suppress(UserError, KeyError, ValueError, re.error, SyntaxError):
            limit = float(options.get("timeout", LIMIT))
            for _ in range(2):  # a stage without destroy_process_group may abort at its end
                ran = shell.run(list(lines), limit, cache_folder(), right)
                if not wrong(lines, ran, options):
                    break

    def length(lines):  # commands with two agents take longest
        return "nodes.py" in " ".join(lines), len(lines)

    alone = [lines for lines in bodies if "alone" in bodies[lines]]
    others = sorted(bodies.keys() - set(alone), key=length, reverse=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, others, map(bodies.get, others)))
    for lines in alone:
        one(lines, bodies[lines])


def _in_cells(text):
    """The lines of each `lab.run("...", ...)` of a page's code."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "lab.run":
            with contextlib.suppress(ValueError):  # a computed line, which runs with its cell
                yield tuple(ast.literal_eval(argument) for argument in node.args)


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
    app.connect("builder-inited", run_ahead, priority=100)  # sphinx-gallery comes at 500
    app.connect("env-purge-doc", purge)
    app.connect("doctree-read", check_blocks)
    app.connect("env-check-consistency", check_all)

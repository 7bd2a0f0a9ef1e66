"""The recorded output of a command, which a reader can play as it came.

    .. terminal::
       :line: 3

       python docs/labs/kill.py 12 torchrun … multigpu_torchrun.py 50 10

The body is shell lines, and `line` the number of the one whose output is shown. Each line of that
begins with the seconds since the start, as kill.py's do. The lines are recorded like those of the
directive `run`, so equal lines share one run; other options mean the same. The page has the whole
text; docs/_static/terminal.js plays it.
"""

import re
from html import escape
from typing import ClassVar

from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from .lesson_diff import shown
from .run import lines_of, recorded

TIMED = re.compile(r" *([\d.]+) s +(?:\| ?)?(.*)")


class Terminal(SphinxDirective):
    option_spec: ClassVar = {
        "line": int, "status": int, "elsewhere": directives.unchanged_required,
    }  # fmt: skip
    has_content = True

    def run(self):
        ran = recorded(self, lines_of(self)).ran[self.options["line"] - 1]
        timed = [TIMED.match(line) for line in ran.output.rstrip("\n").split("\n")]
        if ran.status != self.options.get("status", 0):
            raise self.error(f"status {ran.status}: {ran.line}\n{ran.output}")
        if not all(timed):
            raise self.error(f"not every line begins with its time:\n{ran.output}")
        rows = "".join(
            f'<span data-at="{one[1]}"{mark(one[2])}>{escape(one[2])}\n</span>' for one in timed
        )
        html = (
            f'<div class="terminal"><pre tabindex="0" role="region" aria-label="Recorded terminal">'
            f"<b>$ {escape(ran.line)}</b>\n{rows}</pre></div>"
        )
        return [shown(html, f"$ {ran.line}\n{ran.output.rstrip()}", "text")]


def mark(text):
    return ' class="event"' if text.startswith(("---", "Resuming", "✗", "! ")) else ""


def setup(app):
    app.add_directive("terminal", Terminal)

"""A page as a notebook that runs anywhere, because it contains the scripts.

Commands become cells that run them, diffs become fenced blocks. The first cell writes the scripts
that the page uses into their own folder, unless they are there already.
"""

import ast
import functools
import hashlib
import itertools
import json
import re
import textwrap

import nbformat.v4 as new

from tools import series
from tools.series import stages

from . import directives, ends, shell, torch_docs
from .keys import Keys
from .record import book
from .runs import Block, in_cells

FIRST = '''\
# Write the scripts of this page into their own folder. Existing files are kept.
import os
import sys
from pathlib import Path

files = {files}
folder = Path("distributed-pytorch").resolve()
if Path.cwd().name != folder.name:
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
for name, text in files.items():
    if not Path(name).exists():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]\
'''

# Each command gets a new copy of the scripts, as on the page: many resume from a checkpoint.
START = 'cd "$(python fresh.py)"; set -eo pipefail'
# But blocks that show parts of one run (`:lines:`) share a copy, and each runs its part.
FIRST_PART = 'cd "$(python fresh.py | tee .run-KEY)"; set -eo pipefail'
NEXT_PART = (
    'folder=$(cat .run-KEY 2>/dev/null) || { echo "first run the cells above"; exit 1; }\n'
    'cd "$folder"; set -eo pipefail'
)


def make(blocks):
    """The notebook of a page from its blocks, each `(label, text)`, label "code" or "text"."""
    cells, used, recorded = [], {shell.ROOT / "docs" / "fresh.py"}, {}
    needs = Keys(shell.ROOT, whole=True).dependencies
    for label, text in blocks:
        if label == "code":
            used |= {shell.ROOT / "docs" / "lab.py"} if "lab" in text else set()
            used |= {*needs(re.findall(r'"([^"\n]+)"', text))}
            cells.append(new.new_code_cell(text.strip()))
            for lines in in_cells(text):
                recording, run = book().kept.get(lines), book().runs.get(lines)
                if run and run.elsewhere:
                    ran = recording.ran if recording else []  # it may not be measured yet
                    recorded["\n".join(lines)] = "".join(one.output for one in ran)
        else:
            for cell, lines in _text_cells(text):
                cells.append(cell)
                used |= {*needs(lines)}
    files = {_place(file): file.read_text(encoding="utf-8") for file in sorted(used)}
    if recorded:
        files["recorded.json"] = json.dumps(recorded)
    entries = "".join(f"    {name!r}: {_quoted(text)},\n" for name, text in files.items())
    first = new.new_code_cell(FIRST.replace("{files}", "{\n" + entries + "}"))
    first.metadata = {"jupyter": {"source_hidden": True}}
    notebook = new.new_notebook(cells=[cells[0], first, *cells[1:]])
    notebook.metadata["kernelspec"] = {
        "name": "python3", "display_name": "Python 3", "language": "python"
    }  # fmt: skip
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook


@functools.cache
def _lessons():
    return series.load_all(shell.ROOT)


def _place(file):
    inside = file.relative_to(shell.ROOT)
    return file.name if str(inside) in ("docs/lab.py", "docs/fresh.py") else str(inside)


def _quoted(text):
    return "r'''" + text + "'''" if "'''" not in text and not text.endswith("\\") else repr(text)


def _text_cells(text):
    """The cells of a text block, each with the shell lines that it runs."""
    text = text.rstrip() + "\n"
    prose, end = "", 0
    for found in directives.find(text):
        prose += text[end : found.start]
        end = found.end
        if found.name not in ("run", "terminal") or "elsewhere" in found.options:
            prose += f"\n{_shown(found)}\n\n"
            continue
        if prose.strip():
            yield _markdown(prose), []
        prose = ""
        lines = directives.commands(found.body, _lessons())
        magic = "%%bash" + " --no-raise-error" * (found.options.get("status", "0") != "0")
        start, part = _part(found.options, lines)
        yield new.new_code_cell("\n".join([magic, start, *part])), lines
    prose += text[end:]
    if prose.strip():
        yield _markdown(prose), []


def _shown(found):
    """What a directive shows, in Markdown."""
    match found.name:
        case "run":  # which a reader cannot repeat here
            lines = tuple(directives.commands(found.body, _lessons()))
            recording = book().kept.get(lines)
            if not recording:
                shown = _fenced("\n".join(lines), "sh")
                return f"{shown}\n\n*Not measured yet: {found.options['elsewhere']}.*"
            text = Block(recording.lines, found.options).shown(recording.ran)
            where = f"{recording.date}, {recording.machine} ({recording.elsewhere})"
            return f"{_fenced(text)}\n\n*{where}.*"
        case "not-run":
            lines = "\n".join(directives.commands(found.body, _lessons()))
            return f"{_fenced(lines, 'sh')}\n\n*Not run here: {found.argument}.*"
        case "lesson-diff":
            stage = stages.after(_lessons()[found.argument].edit(found.options["edit"]))
            return f"{_fenced(_diff(stage), 'diff')}\n\n{found.body}"
        case "lesson-script":
            return _fenced(_lessons()[found.argument].source.text, "python")
        case "recipe":
            return _fenced((shell.ROOT / "launch" / found.argument).read_text(), "sh")
        case "literalinclude":
            return _fenced(_included(found), "python")
        case "code-block":
            return _fenced(found.body, found.argument)
        case "lessons-table":
            return "\n".join(_list_table(directives.lessons_table(series.load(shell.ROOT))))
        case "list-table":
            return "\n".join(_list_table(found.body))
        case "diagram":
            return f"**Figure on the page.** {found.body}"
        case "play":  # the cell above draws the figure
            return f"*{' '.join(found.body.split())}*"
        case "fold":
            title = re.sub("``(.+?)``", r"<code>\1</code>", found.argument)
            return f"<details><summary>{title}</summary>\n\n{_inside(found)}\n\n</details>"
        case "page-end":
            facts = found.argument, found.options["next"], found.options.get("also", "")
            return "\n\n".join([_inside(found), *ends.lines(_lessons(), *facts)])
        case "toctree":
            return ""
    raise ValueError(f"a notebook cannot show {found.name}: teach tools/pages/notebook.py")


def _fenced(text, language=""):
    return f"```{language}\n{text}\n```"


def _inside(found):
    """The body of a directive in Markdown."""
    return "\n\n".join(cell["source"] for cell, _ in _text_cells(found.body))


def _part(options, lines):
    """How the cell of a command begins, and which of its lines it runs."""
    if "lines" not in options:
        return START, lines
    first, last = map(int, options["lines"].split())
    key = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return (FIRST_PART if first == 1 else NEXT_PART).replace("KEY", key), lines[first - 1 : last]


def _included(found):
    """The definition that a literalinclude of a page shows, in full."""
    text = (shell.ROOT / "docs" / "pages" / found.argument).read_text(encoding="utf-8")
    definition = ast.parse(text)
    for name in found.options["pyobject"].split("."):
        definition = next(node for node in definition.body if getattr(node, "name", "") == name)
    return textwrap.dedent(" " * definition.col_offset + ast.get_source_segment(text, definition))


def _list_table(body):
    for number, row in enumerate(re.split(r"(?m)^\* ", body)[1:]):
        cells = [" ".join(cell.split()) for cell in re.split(r"(?m)^ *-(?: |$)", row)[1:]]
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield "|---" * len(cells) + "|"


def _diff(stage):
    lines = [f"--- {stage.before.name}", f"+++ {stage.name}"]
    shown = zip(stage.rows, series.near_changes(stage.rows), strict=True)
    for near, run in itertools.groupby(shown, lambda pair: pair[1]):
        rows = [row for row, _ in run]
        if near:
            lines.append(f"@@ {rows[0].scope} @@")
            lines += [(row.sign + row.text).rstrip() for row in rows]
    return "\n".join(lines)


def _markdown(text):
    """rST as far as the pages use it: headings, literals, links, roles, definition lists."""
    fences = re.split(r"(```.*?```)", text, flags=re.DOTALL)
    for i in range(0, len(fences), 2):
        part = fences[i]
        for mark, level in (("=", "#"), ("-", "##"), ("~", "###")):
            part = re.sub(rf"(?m)^(\S.*)\n{re.escape(mark)}{{3,}}$", rf"{level} \1", part)
        part = re.sub(r":(?:doc|ref|term|index):`([^`<]+?)(?: *<[^`>]+>)?`", r"*\1*", part)
        part = re.sub(r":torch:`(.+?)`", _torch_link, part, flags=re.DOTALL)
        part = re.sub(r"\\ :sup:`(.+?)`", r"<sup>\1</sup>", part)
        part = re.sub(r"`([^`<]+?)\s*<([^`>]+)>`__?", r"[\1](\2)", part)
        fences[i] = re.sub(r"``(.+?)``", r"`\1`", part, flags=re.DOTALL)
    return new.new_markdown_cell("".join(fences).strip())


def _torch_link(found):
    text, name = torch_docs.split(found[1])
    return f"[`{text}`]({torch_docs.address(name)})"


def setup(app):
    """Let sphinx-gallery offer this notebook for download. It has no hook, so patch it."""
    from sphinx_gallery import gen_rst

    gen_rst.jupyter_notebook = lambda blocks, *_: make([(b[0], b[1]) for b in blocks])

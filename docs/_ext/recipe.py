"""A launch recipe: the commands that start it, and its whole file in a fold.

    .. recipe:: slurm.sh

The commands are the first indented lines of the file's comment. The role :launch:`slurm.sh` shows
the first of them in a sentence. The build fails for a recipe that no test of tests/cluster names.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

from .fold import fold, summary
from .run import folded, note, ran, run_block

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {".sh": "bash", ".yaml": "yaml", ".conf": "text"}


class Recipe(SphinxDirective):
    required_arguments = 1

    def run(self):
        file = ROOT / "launch" / self.arguments[0]
        tests = [test for test in ROOT.glob("tests/cluster/test_*.py") if names(test, file.name)]
        if not tests:
            raise self.error(f"no test of tests/cluster runs launch/{file.name}")
        proofs = ", ".join(sorted(test.name for test in tests))
        text = file.read_text(encoding="utf-8").rstrip("\n")
        lines = usage(text)
        note(self.env, "commands", *lines)
        size = f"launch/{file.name}, {len(text.splitlines())} lines"
        block = ran(text, LANGUAGES[file.suffix], classes=())
        whole = run_block(block, f"tested in tests/cluster: {proofs}", "recipe")
        found = [fold("", summary("", size), whole, classes=["fold"])]
        if lines:
            commands = ran("\n".join(f"$ {folded(line)}" for line in lines))
            found.insert(0, nodes.container("", commands, classes=["run-block"]))
        return found


class Launch(SphinxRole):
    def run(self):
        text = (ROOT / "launch" / self.text).read_text(encoding="utf-8")
        return [nodes.literal("", usage(text)[0])], []


def usage(text):
    """The commands in the comment of a recipe, without the remarks after them."""
    found = re.search(r"(?m)^#\n((?:#   +\S.*\n)+)", text)
    lines = re.sub(r" \\\n# +", " ", found[1]).splitlines() if found else []
    return [re.sub(r" +\([\w ]+\)$", "", line[4:]) for line in lines]


def names(test, name):
    """Whether the code of a test contains the name. A comment would prove nothing."""
    return re.search(rf"(?m)^[^#\n]*\b{re.escape(name)}", test.read_text(encoding="utf-8"))


def setup(app):
    app.add_directive("recipe", Recipe)
    app.add_role("launch", Launch())

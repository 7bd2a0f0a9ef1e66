"""A launch recipe as it is in its file, and the tests that name it.

    .. recipe:: slurm.sh

The build fails for a recipe that no test of tests/cluster names.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from tools.series import own

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {".sh": "bash", ".yaml": "yaml", ".py": "python"}


class Recipe(SphinxDirective):
    required_arguments = 1

    def run(self):
        file = ROOT / "launch" / self.arguments[0]
        if not file.is_file():
            raise self.error(f"launch has no {file.name}")
        tests = list(filter(own(ROOT), ROOT.glob("tests/cluster/test_*.py")))
        proofs = sorted(test.name for test in tests if names(test, file.name))
        if not proofs:
            raise self.error(f"no test of tests/cluster runs launch/{file.name}")
        text = file.read_text(encoding="utf-8").rstrip("\n")
        block = nodes.literal_block(text, text, language=LANGUAGES[file.suffix])
        block["ran"] = True  # as the directive run marks its blocks
        note = nodes.paragraph(classes=["run-note"])
        note += nodes.Text(f"launch/{file.name}; tested in tests/cluster: {', '.join(proofs)}")
        return [nodes.container("", block, note, classes=["run-block", "recipe"])]


def names(test, name):
    """Whether the code of a test contains the name. A comment would prove nothing."""
    return re.search(rf"(?m)^[^#\n]*\b{re.escape(name)}", test.read_text(encoding="utf-8"))


def setup(app):
    app.add_directive("recipe", Recipe)

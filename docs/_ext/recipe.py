"""A launch recipe as it stands in its file, and the tests that name it.

    .. recipe:: slurm.sh

The build fails for a recipe that no test of tests/cluster names.
"""

from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {".sh": "bash", ".yaml": "yaml", ".py": "python"}


class Recipe(SphinxDirective):
    required_arguments = 1

    def run(self):
        file = ROOT / "launch" / self.arguments[0]
        if not file.is_file():
            raise self.error(f"launch has no {file.name}")
        tests = {test: test.read_text(encoding="utf-8") for test in ROOT.glob("tests/cluster/*.py")}
        proofs = sorted(test.name for test, text in tests.items() if file.name in text)
        if not proofs:
            raise self.error(f"no test of tests/cluster runs launch/{file.name}")
        for dependency in (file, *tests):
            self.env.note_dependency(str(dependency))
        text = file.read_text(encoding="utf-8").rstrip("\n")
        block = nodes.literal_block(text, text, language=LANGUAGES[file.suffix])
        block["ran"] = True  # as the directive run says of its blocks
        note = nodes.paragraph(classes=["run-note"])
        note += nodes.Text(f"launch/{file.name}, tested by tests/cluster/{', '.join(proofs)}")
        return [nodes.container("", block, note, classes=["run-block", "recipe"])]


def setup(app):
    app.add_directive("recipe", Recipe)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""A small series that breaks no rule, and helpers that break it."""

import shutil
from pathlib import Path

import pytest

GOOD = Path(__file__).parent / "good"


class Tree:
    """A copy of the good series in its own folder."""

    def __init__(self, root: Path):
        self.root = root
        shutil.copytree(GOOD, root)

    def read(self, file):
        return (self.root / file).read_text(encoding="utf-8")

    def write(self, file, text):
        (self.root / file).write_text(text, encoding="utf-8")

    def edit(self, file, old, new):
        """Replace the one place where `file` has `old`."""
        text = self.read(file)
        assert text.count(old) == 1, f"{file} has {text.count(old)} of {old!r}"
        self.write(file, text.replace(old, new))

    def become_two(self, old, new, *scopes):
        """Become a series of two scripts, a.py and b.py; edit n has the nth scope."""
        self.write("a.py", "\n".join(old) + "\n")
        self.write("b.py", "\n".join(new) + "\n")
        text = '[a]\ntitle = ""\n[b]\ntitle = ""\nparent = "a"\nbudget = 9\nedit = []\n'
        for nth, scope in enumerate(scopes):
            text += f'[[b.edit]]\nname = "{nth}"\ntitle = ""\nscopes = [{scope}]\n'
        self.write("lessons.toml", text if not scopes else text.replace("edit = []\n", ""))


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path / "series")

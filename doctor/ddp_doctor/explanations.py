"""`ddp-doctor explain RULE`: what is wrong, why it matters, and the fix as a diff.

The texts are the docstrings of rules/. The diffs are the defects in cases.py the other way round: a
test puts each defect into a correct script, and the doctor must name it.
"""

import difflib
import runpy
import textwrap
from pathlib import Path

from .diagnosis import Mistake
from .rule import RULES

PACKAGE = Path(__file__).parent
CASES = "defects/cases.py"  # is beside the package in a clone, and inside it once installed


def of(names: list[str]) -> str:
    """The pages of some rules; without names, a line about each rule."""
    known = {one.name: one for one in RULES}
    if not names:
        width = max(map(len, known))
        return "\n".join(f"{name:{width}}  {one.sentence}" for name, one in known.items())
    pages = []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3) or ["`ddp-doctor explain` lists them"]
            raise Mistake(f"no rule is called {name!r}: {', '.join(near)}")
        one = known[name]
        texts = [f"{one.name}: {one.severity}", *map(_filled, (one.sentence, one.advice))]
        if fix := fix_of(name):
            texts.append(textwrap.indent(fix, "    "))
        pages.append("\n\n".join(texts))
    return "\n\n".join(pages)


def fix_of(name: str) -> str | None:
    """A diff of a script with the defect to the correct one; None if there is none."""
    file = next(filter(Path.exists, [PACKAGE / CASES, PACKAGE.parent / CASES]))
    names = runpy.run_path(str(file))
    case = next((one for one in names["CASES"] + names["RESTARTS"] if one.rule == name), None)
    if not case:
        return None
    right = names["CORRECT"]
    wrong, right = right.replace(case.old, case.new).splitlines(), right.splitlines()
    diff = [*difflib.unified_diff(wrong, right, n=1, lineterm="")][3:]
    return "\n".join(line for line in diff if not line.startswith("@@"))


def _filled(text):
    return textwrap.fill(text, 88)

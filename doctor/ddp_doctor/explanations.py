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
    """The pages of some rules; without names, the list of them."""
    known, pages = {one.name: one for one in RULES}, []
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3) or known
            raise Mistake(f"no rule is called {name!r}: {', '.join(near)}")
        one = known[name]
        texts = [f"{name}: {one.severity}", *map(textwrap.fill, (one.sentence, one.advice))]
        pages.append("\n\n".join(filter(None, [*texts, fix_of(name)])))
    return "\n\n".join(pages) or "\n".join(known)


def fix_of(name: str) -> str | None:
    """A diff of a script with the defect to the correct one; None if there is none."""
    file = next(filter(Path.exists, [PACKAGE / CASES, PACKAGE.parent / CASES]))
    names = runpy.run_path(str(file))
    for case in names["CASES"] + names["RESTARTS"]:
        if case.rule == name:
            wrong = names["CORRECT"].replace(case.old, case.new).splitlines()
            diff = difflib.unified_diff(wrong, names["CORRECT"].splitlines(), n=1, lineterm="")
            return "\n".join(line for line in [*diff][3:] if not line.startswith("@@"))
    return None

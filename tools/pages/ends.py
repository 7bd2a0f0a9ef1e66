"""What the end of a page lists: the APIs of its diffs, and the exercises of its lesson."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tools.series import Series, stages

EXERCISES = Path(__file__).parents[2] / "workshop" / "exercises.toml"


def apis(lessons: Series, page: str) -> list[str]:
    """torch's names in the lines that the edits of a page add, in the order of the page.

    A page without edits explains a whole script, and all its lines count.
    """
    own = [lesson for lesson in lessons if lesson.page == page]
    edits = [edit for lesson in lessons for edit in lesson.edits if edit.page == page]
    found = [name for edit in edits for name in _of_stage(stages.after(edit))]
    if not edits:
        found = [name for lesson in own for name in names(lesson.source.text)]
    return list(dict.fromkeys(found))


def _of_stage(stage) -> Iterator[str]:
    added = {row.number for row in stage.rows if row.sign == "+"}
    return names(stage.source.text, added)


def names(text: str, lines: set[int] | None = None) -> Iterator[str]:
    """The full names from torch that a script uses, on these lines or on all of them."""
    tree = ast.parse(text)
    known = dict(_imported(tree))
    used = [node for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.Name))]
    # `torch.optim` in `torch.optim.SGD` is a part, not a use.
    parts = {node.value for node in used if isinstance(node, ast.Attribute)}
    for node in sorted(used, key=lambda node: (node.lineno, node.col_offset)):
        first, *rest = ast.unparse(node).split(".")
        if first in known and node not in parts and all(map(str.isidentifier, rest)):
            name = ".".join([known[first], *rest])
            if "._" not in name and (lines is None or node.lineno in lines):
                yield name


def _imported(tree) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.partition(".")[0] == "torch":
                    yield one.asname or "torch", one.name if one.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def exercises(lessons: Series, page: str) -> tuple[str, int, int] | None:
    """The workshop's exercise of a page's lesson, its steps, and how many bug hunts it has.

    The GPT and a lesson of beyond/ have no path: the first exercise of the page, with no steps.
    """
    table = tomllib.loads(EXERCISES.read_text(encoding="utf-8"))
    for edit in [edit for lesson in lessons for edit in lesson.edits if edit.page == page]:
        if edit.lesson.name == "mingpt" and edit.name in table["gpt"]:
            return f"mingpt/{edit.name}", 0, 0
    for lesson in (lesson for lesson in lessons if lesson.page == page):
        if lesson.name in table["parallel"]:
            return lesson.name, len(lesson.edits), 0
        if lesson.name in table["edits"]:
            return lesson.name, len(lesson.edits), len(table["hunts"][lesson.name])
        for edit in table["beyond"].get(lesson.name, {}):
            return f"{lesson.name}/{edit}", 0, 0
    return None


def lines(lessons: Series, page: str, following: str, also: str = "") -> list[str]:
    """The last paragraphs of a page, in rST: the exercise, where to read on, the links."""
    found = []
    if exercise := exercises(lessons, page):
        name, steps, hunts = exercise
        start = f"**Exercise:** after ``python -m workshop start {name}`` you make the"
        start += f" {steps} edits yourself." if steps > 1 else " edit yourself."
        more = f" :doc:`workshop` also has {hunts} bug hunts in this script."
        found.append(start + more * bool(hunts))
    found.append(f"**Read next:** {following}.")
    linked = dict.fromkeys([*apis(lessons, page), *filter(None, map(str.strip, also.split(",")))])
    if linked:
        links = ", ".join(f":torch:`{name}`" for name in linked)
        found.append(f"**In PyTorch's documentation:** {links}.")
    return found

"""Write the fingerprint of an edit's lines beside the prose that explains them."""

import re

from tools import series
from tools.errors import UserError
from tools.series import stages

from .runs import pages
from .shell import ROOT

DIFF = re.compile(
    r"(?m)^(?P<head>(?P<comment>#? *)\.\. lesson-diff:: *(?P<lesson>\w+)\n"
    r"(?P=comment) +:edit: *(?P<edit>[\w-]+)\n)(?:(?P=comment) +:confirmed:.*\n)?"
)


def confirm(lesson: str | None = None, edit: str | None = None) -> list[str]:
    """Confirm the prose of one edit, of a lesson's, or of all; returns what has changed.

    Raises UserError for names that do not exist, or that no page shows.
    """
    lessons, seen, changed = series.load_all(ROOT), False, []
    if lesson:
        _ = lessons[lesson].edit(edit) if edit else lessons[lesson]

    def confirmed(found):
        nonlocal seen
        if lesson not in (None, found["lesson"]) or edit not in (None, found["edit"]):
            return found[0]
        seen = True
        fingerprint = stages.after(lessons[found["lesson"]].edit(found["edit"])).fingerprint
        text = f"{found['head']}{found['comment']}   :confirmed: {fingerprint}\n"
        if text != found[0]:
            changed.append(f"{found['lesson']} {found['edit']}: {fingerprint}")
        return text

    for page in pages(ROOT):
        old = page.read_text(encoding="utf-8")
        if (text := DIFF.sub(confirmed, old)) != old:
            page.write_text(text, encoding="utf-8")
    if not seen:
        raise UserError(f"no page in docs/pages shows {lesson or 'anything'} {edit or ''}")
    return changed

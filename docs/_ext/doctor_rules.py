"""The doctor's rules, a section each: what is wrong, why it matters, and the fix as a diff.

    .. doctor-rules::
    .. doctor-score::

The texts are the docstrings of doctor/ddp_doctor/rules. The diffs are the defects of doctor/defects
the other way round: a test puts each defect into a correct script, and the doctor must name it.
The score is that of doctor/benchmark, from its results.
"""

import difflib

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ddp_doctor import rules  # noqa: F401 - defines them
from ddp_doctor.rule import RULES
from doctor.benchmark.cases import HERE, results, score
from doctor.defects.cases import CASES, CORRECT, RESTARTS


class DoctorRules(SphinxDirective):
    def run(self):
        found = []
        for one in RULES:
            section = nodes.section(ids=[one.name], names=[one.name])
            section += nodes.title("", one.name)
            self.state.document.note_implicit_target(section)
            text, _ = self.parse_inline(f"**{one.severity.capitalize()}.** {one.sentence}")
            section += nodes.paragraph("", "", *text)
            text, _ = self.parse_inline(one.advice.replace("`", "``"))
            section += nodes.paragraph("", "", *text)
            case = next((case for case in [*CASES, *RESTARTS] if case.rule == one.name), None)
            if case:
                section += self.fix(case)
            found.append(section)
        return found

    def fix(self, case):
        """The defect's lines and the correct ones."""
        wrong, right = CORRECT.replace(case.old, case.new).splitlines(), CORRECT.splitlines()
        diff = [*difflib.unified_diff(wrong, right, n=1, lineterm="")][3:]
        text = "\n".join(line for line in diff if not line.startswith("@@"))
        return nodes.literal_block(text, text, language="diff")


class DoctorScore(SphinxDirective):
    def run(self):
        rows = [("", "Cases", "Named", "Half named", "Missed", "False words")]
        rows += score(results()["cases"])
        for path in sorted(HERE.glob("results/*.json")):
            about = results(path.stem)
            if path.stem != "ddp-doctor":
                rows.append((f"{path.stem} {about['version']}", *score(about["cases"])[-1][1:]))
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for first, *others in rows:
            lines += [f"   * - {first}", *(f"     - {one}" for one in others)]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app):
    app.add_directive("doctor-score", DoctorScore)
    app.add_directive("doctor-rules", DoctorRules)
    return {"parallel_read_safe": True}

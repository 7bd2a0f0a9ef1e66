"""The doctor's rules, a section each: what is wrong, why it matters, and the fix as a diff.

    .. doctor-rules::
    .. doctor-score::

The texts are those of `ddp-doctor explain RULE`. The score is that of doctor/benchmark, from its
results.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from ddp_doctor import rules  # noqa: F401 - defines them
from ddp_doctor.explanations import fix_of
from ddp_doctor.rule import RULES
from doctor.benchmark.cases import HERE, results, score


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
            if fix := fix_of(one.name):
                section += nodes.literal_block(fix, fix, language="diff")
            found.append(section)
        return found


class DoctorScore(SphinxDirective):
    def run(self):
        rows = [("Kind", "Cases", "Named", "Half named", "Missed", "False words")]
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

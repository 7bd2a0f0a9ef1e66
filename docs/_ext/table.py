"""The lessons as a table, each with its page, its size and its command.

.. lessons-table::
"""

from sphinx.util.docutils import SphinxDirective

from .lesson_diff import lessons


class LessonsTable(SphinxDirective):
    def run(self):
        rows = [".. list-table::", "   :header-rows: 1", "", "   * - script", "     - what it adds",
                "     - changed lines", "     - page"]  # fmt: skip
        for lesson in lessons():
            if lesson.root != lessons().root:
                continue  # this lesson belongs to the chain of a single page
            added, removed = lesson.count()
            size = f"+{added} −{removed}" if lesson.parent else "the start"
            rows += [f"   * - ``{lesson.file}``", f"     - {lesson.title}", f"     - {size}",
                     f"     - :doc:`/series/{lesson.page}`"]  # fmt: skip
        return self.parse_text_to_nodes("\n".join(rows))


def setup(app):
    app.add_directive("lessons-table", LessonsTable)

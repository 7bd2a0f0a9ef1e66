"""The strip `Introduction || What is DDP || …` on top of every page of the series.

Names and order are those of the pages themselves: their titles, and the first toctree of index.
"""

from sphinx import addnodes


def add_strip(app, pagename, templatename, context, doctree):
    if pagename.startswith("series/"):
        toctree = next(app.env.get_doctree("index").findall(addnodes.toctree))
        pages = toctree["includefiles"]
        link = context["pathto"]
        context["strip"] = [
            (app.env.titles[name].astext(), link(name), name == pagename) for name in pages
        ]


def headings_have_levels(app, pagename, templatename, context, doctree):
    """Sphinx writes the caption of a toctree with role="heading", and no aria-level."""
    for name in ("body", "furo_navigation_tree"):
        text = context.get(name) or ""
        context[name] = text.replace('role="heading">', 'role="heading" aria-level="2">')


def setup(app):
    app.connect("html-page-context", headings_have_levels, priority=900)  # after furo's
    app.connect("html-page-context", add_strip)

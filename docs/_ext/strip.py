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


def setup(app):
    app.connect("html-page-context", add_strip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

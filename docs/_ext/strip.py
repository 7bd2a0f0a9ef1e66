"""The strip `Introduction || What is DDP || …` on top of every page of the series.

The names are the pages' titles, the order is that of the first toctree of index. A page that has
its own toctree is the first of several parts, which a second line lists.
"""

from sphinx import addnodes


def add_strip(app, pagename, templatename, context, doctree):
    if pagename.startswith("series/"):
        toctree = next(app.env.get_doctree("index").findall(addnodes.toctree))
        pages = toctree["includefiles"]
        parts = [[page, *app.env.toctree_includes.get(page, [])] for page in pages]
        here = next((names for names in parts if len(names) > 1 and pagename in names), [])

        def entries(names):
            link = context["pathto"]
            return [(app.env.titles[one].astext(), link(one), one == pagename) for one in names]

        context["strip"] = [entries(names) for names in (pages, here[1:]) if names]


def setup(app):
    app.connect("html-page-context", add_strip)

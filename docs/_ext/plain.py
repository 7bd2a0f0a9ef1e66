"""Write llms.txt beside the plain-text build: what the site is, and where each page is as text."""

from docutils import nodes
from sphinx import addnodes


def write_index(app, exception):
    if exception or app.builder.name != "text":
        return
    env, lines = app.env, []
    index = env.get_doctree("index")
    lead = index.next_node(nodes.paragraph).astext().replace("\n", " ")
    lines += [f"# {app.config.project}", "", f"> {lead}", ""]
    for toctree in index.findall(addnodes.toctree):
        lines += [f"## {toctree['caption']}", ""]
        names = toctree["includefiles"]
        for name in [one for top in names for one in (top, *env.toctree_includes.get(top, []))]:
            if name in env.titles:  # the general index has none
                lines.append(f"- [{env.titles[name].astext()}]({app.outdir.name}/{name}.txt)")
        lines.append("")
    (app.outdir.parent / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def setup(app):
    app.connect("build-finished", write_index)

"""What surrounds a page: the chapters on top, all pages and its contents in the sidebar, and the
footer; and llms.txt, the list of all pages as text.

The names are the pages' titles, and the order is that of the toctrees of index, of which the first
two are the parts of the series: their pages are numbered chapters.

`repository` in conf.py is the address of the repository, such as https://github.com/you/name.
Links to it, to its issues and to the source of a page exist only if it is set.
"""

import contextlib
import os
import re
import subprocess
import textwrap
import time
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

from .fold import fold

ROOT = Path(__file__).resolve().parents[2]
WORDS, LINES = 200, 25  # read per minute: words of prose; lines of code, output or a table
PARTS = 2  # of the series, each a toctree
SHORT = 200  # characters of a description: search engines cut longer ones


def toctrees(env):
    return list(env.get_doctree("index").findall(addnodes.toctree))


def parts(env):
    return toctrees(env)[:PARTS]


def series(env):
    """The pages of the series in reading order."""
    return [page for part in parts(env) for page in part["includefiles"]]


def name_of_deleted(app, env, node, contnode):
    """What a link shows if somebody has deleted the lesson of that page, and so the page."""
    name = Path(node["reftarget"]).name
    is_of_lesson = node["reftype"] == "doc" and name.startswith("beyond_")
    return contnode if is_of_lesson and (ROOT / f"docs/pages/{name}.py").exists() else None


def measure(app, doctree):
    """Keep how many minutes a page takes, without its folds, and how it describes itself."""
    words = lines = 0
    for node in doctree.findall(nodes.TextElement):
        if is_folded(node):
            continue
        if isinstance(node, nodes.literal_block):
            lines += node.astext().count("\n") + 1
        elif isinstance(node, nodes.paragraph | nodes.title | nodes.term):
            words += len(node.astext().split())
    # Those that are not in a section are in notes, such as sphinx-gallery's.
    texts = [" ".join(one.astext().split()) for one in doctree.findall(nodes.paragraph)
             if isinstance(one.parent, nodes.section)]  # fmt: skip
    goals = [text for text in texts if text.startswith("You will be able to")]
    kept = app.env.metadata[app.env.docname]
    kept["minutes"] = max(1, round(words / WORDS + lines / LINES))
    kept["description"] = next(iter(goals + texts), "")


def is_folded(node):
    while node and not isinstance(node, fold) and "picture-code" not in node.get("classes", ()):
        node = node.parent
    return node is not None


def contents(env, pagename):
    """The titles of a page's sections, without those inside them, and their anchors."""
    if pagename not in env.tocs:
        return []
    sections = [one for one in env.tocs[pagename][0] if isinstance(one, nodes.bullet_list)]
    links = [item.next_node(nodes.reference) for one in sections for item in one]
    return [(link.astext(), link["anchorname"]) for link in links if link]  # a toctree has none


def fill(app, pagename, templatename, context, doctree):
    env = app.env

    def group(toctree):
        names = [name for _, name in toctree["entries"]]
        titles = [env.titles[one].astext() if one in env.titles else "Index" for one in names]
        links = map(context["pathto"], names)
        pages = list(zip(titles, links, [one == pagename for one in names], strict=True))
        return toctree["caption"], pagename in names, pages

    groups = [group(toctree) for toctree in toctrees(env)]
    context["parts"], context["groups"] = groups[:PARTS], groups[PARTS:]
    context["series"] = [page for *_, pages in context["parts"] for page in pages]
    inside = pagename in series(env)
    context["minutes"] = env.metadata[pagename]["minutes"] if inside else None
    context["contents"] = contents(env, pagename)
    context["furo_hide_toc"] = True  # the contents are in the sidebar, at every width
    text = env.metadata.get(pagename, {}).get("description", "")
    context["description"] = textwrap.shorten(text, SHORT, placeholder=" …")
    context["repository"] = repository = app.config.repository.rstrip("/")
    if repository.startswith("https://github.com/"):  # other hosts have other addresses
        context["report"] = f"{repository}/issues/new/choose"
        for suffix in (".py", ".rst"):
            source = f"{pagename.replace('series/', 'docs/pages/')}{suffix}"
            if (ROOT / source).is_file():
                context["edit"] = f"{repository}/edit/main/{source}"


def built(app):
    """The edition, the commit and the date, as the footer shows them."""
    changes = (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
    edition = re.search(r"(?m)^## ([^,\n]+)", changes)[1]
    git, commit = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], ""
    if (ROOT / ".git").exists():  # else the files came without git
        with contextlib.suppress(OSError):
            commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    facts = {"edition": edition, "commit": commit, "built": time.strftime("%Y-%m-%d", when)}
    app.config.html_context.update(facts)


def list_as_text(app, exception):
    """Write llms.txt beside the plain-text build: what the site is, and where each page is."""
    if exception or app.builder.name != "text":
        return
    lead = app.env.get_doctree("index").next_node(nodes.paragraph).astext().replace("\n", " ")
    lines = [f"# {app.config.project}", "", f"> {lead}", ""]
    for toctree in toctrees(app.env):
        lines += [f"## {toctree['caption']}", ""]
        for name in toctree["includefiles"]:
            if name in app.env.titles:  # the general index has none
                title = app.env.titles[name].astext()
                lines.append(f"- [{title}]({app.outdir.name}/{name}.txt)")
        lines.append("")
    (app.outdir.parent / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def setup(app):
    app.add_config_value("repository", "", "env")
    app.connect("builder-inited", built)
    app.connect("doctree-read", measure)
    app.connect("missing-reference", name_of_deleted)
    app.connect("html-page-context", fill, priority=900)  # after furo's
    app.connect("build-finished", list_as_text)

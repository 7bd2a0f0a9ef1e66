"""What surrounds a page: its contents in the sidebar, its place in the series, the footer.

`repository` in conf.py is the address of the repository, such as https://github.com/you/name.
Links to it, to its issues and to the source of a page exist only if it is set.
"""

import os
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

from .fold import fold

ROOT = Path(__file__).resolve().parents[2]
WORDS, LINES = 200, 25  # read per minute: words of prose; lines of code, output or a table
SHORT = 200  # characters of a description: search engines cut longer ones


def series(env):
    """The pages of the series in reading order, each followed by its parts."""
    toctree = next(env.get_doctree("index").findall(addnodes.toctree))
    return [one for page in toctree["includefiles"]
            for one in (page, *env.toctree_includes.get(page, []))]  # fmt: skip


def measure(app, doctree):
    """Keep how many minutes a page takes, without its folds, and how it describes itself."""
    words = lines = 0
    for node in doctree.findall(nodes.TextElement):
        if any(isinstance(parent, fold) for parent in ancestors(node)):
            continue
        if isinstance(node, nodes.literal_block):
            lines += node.astext().count("\n") + 1
        elif isinstance(node, nodes.paragraph | nodes.title | nodes.term):
            words += len(node.astext().split())
    docname = app.env.docname
    app.env.minutes[docname] = max(1, round(words / WORDS + lines / LINES))
    paragraphs = doctree.findall(nodes.paragraph)
    texts = (one.astext() for one in paragraphs if isinstance(one.parent, nodes.section))
    text = " ".join(next(texts, "").split())
    if len(text) > SHORT:
        text = text[:SHORT].rpartition(" ")[0] + " …"
    app.env.descriptions[docname] = text


def ancestors(node):
    while node := node.parent:
        yield node


def fill(app, pagename, templatename, context, doctree):
    env = app.env
    pages = series(env)
    if pagename in pages:
        context["place"] = (pages.index(pagename) + 1, len(pages), env.minutes[pagename])
    context["contents"] = "" if context.get("furo_hide_toc", True) else context["toc"]
    context["furo_hide_toc"] = True  # the contents are in the sidebar, at every width
    toctrees = list(env.get_doctree("index").findall(addnodes.toctree))[1:]
    context["others"] = [
        (tree["caption"], [entry(env, context, name, pagename) for _, name in tree["entries"]])
        for tree in toctrees
    ]
    context["description"] = env.descriptions.get(pagename, "")
    if base := app.config.html_baseurl:
        context["card"] = f"{base.rstrip('/')}/card.png"  # docs/_ext/card.py draws it
    repository = app.config.repository.rstrip("/")
    context["repository"] = repository
    source = ROOT / "docs" / "pages" / f"{pagename.rpartition('/')[2]}"
    found = [file for suffix in (".py", ".rst") if (file := source.with_suffix(suffix)).exists()]
    if repository and found and pagename.startswith("series/"):
        context["edit"] = f"{repository}/edit/main/{found[0].relative_to(ROOT)}"


def entry(env, context, name, here):
    title = env.titles[name].astext() if name in env.titles else "Index"  # the general index
    return title, context["pathto"](name), name == here


def built_with():
    """The edition, the commit, the date and torch, as the footer shows them."""
    edition = re.search(r"(?m)^## (.+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))[1]
    git = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]
    ran = subprocess.run(git, capture_output=True, text=True)
    when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return {
        "edition": edition,
        "commit": ran.stdout.strip(),  # empty where the files came without git
        "built": time.strftime("%Y-%m-%d", when),
        "torch": version("torch"),
    }


def start(app):
    for name in ("minutes", "descriptions"):
        if not hasattr(app.env, name):
            setattr(app.env, name, {})
    app.config.html_context.update(built_with())


def setup(app):
    app.add_config_value("repository", "", "env")
    app.connect("builder-inited", start)
    app.connect("doctree-read", measure)
    app.connect("html-page-context", fill, priority=900)  # after furo's

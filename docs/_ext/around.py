"""What surrounds a page: its contents in the sidebar, its place in the series, the footer.

`repository` in conf.py is the address of the repository, such as https://github.com/you/name.
Links to it, to its issues and to the source of a page exist only if it is set.
"""

import contextlib
import os
import re
import subprocess
import textwrap
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
        if "picture-code" in node.get("classes", ()) or any(
            isinstance(parent, fold) for parent in ancestors(node)
        ):
            continue
        if isinstance(node, nodes.literal_block):
            lines += node.astext().count("\n") + 1
        elif isinstance(node, nodes.paragraph | nodes.title | nodes.term):
            words += len(node.astext().split())
    docname = app.env.docname
    app.env.minutes[docname] = max(1, round(words / WORDS + lines / LINES))
    paragraphs = doctree.findall(nodes.paragraph)
    texts = [" ".join(one.astext().split()) for one in paragraphs if is_in_a_section(one)]
    goals = [text for text in texts if text.startswith("You will be able to")]
    app.env.descriptions[docname] = next(iter(goals + texts), "")


def is_in_a_section(paragraph):
    return isinstance(paragraph.parent, nodes.section)  # and in no note, such as sphinx-gallery's


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
    toctrees = list(env.get_doctree("index").findall(addnodes.toctree))
    if "strip" in context:  # it has the pages of the series
        toctrees = toctrees[1:]
    context["others"] = [
        (tree["caption"], [entry(env, context, name, pagename) for _, name in tree["entries"]])
        for tree in toctrees
    ]
    text = env.descriptions.get(pagename, "")
    context["description"] = textwrap.shorten(text, SHORT, placeholder=" …")
    if base := app.config.html_baseurl:
        context["card"] = f"{base.rstrip('/')}/card.png"  # docs/_ext/card.py draws it
    context["repository"] = repository = app.config.repository.rstrip("/")
    source = ROOT / "docs" / "pages" / f"{pagename.rpartition('/')[2]}"
    found = [file for suffix in (".py", ".rst") if (file := source.with_suffix(suffix)).exists()]
    if is_on_github(repository):  # other hosts have other addresses
        context["report"] = f"{repository}/issues/new/choose"
        if found and pagename.startswith("series/"):
            context["edit"] = f"{repository}/edit/main/{found[0].relative_to(ROOT)}"


def is_on_github(repository):
    return repository.startswith("https://github.com/")


def entry(env, context, name, here):
    title = env.titles[name].astext() if name in env.titles else "Index"  # the general index
    return title, context["pathto"](name), name == here


def built_with():
    """The edition, the commit, the date and torch, as the footer shows them."""
    changes = (ROOT / "docs" / "CHANGELOG.md").read_text(encoding="utf-8")
    edition = re.search(r"(?m)^## (.+)", changes)[1]
    git, commit = ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], ""
    if (ROOT / ".git").exists():  # else the files came without git
        with contextlib.suppress(OSError):
            commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    when = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return {
        "edition": edition,
        "commit": commit,
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

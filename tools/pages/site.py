"""The finished site, checked without a browser or a network.

    python -m tools.pages check docs/_build/html

Links and anchors lead somewhere, what a page loads is there and comes from the site itself, no id
stands twice on a page, every picture has words, no page is heavy, every page beside the series has
its strip, and those of the series their neighbours and a notebook. Links that a reader follows to
other hosts are not tried.
"""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.series import Problem

HEAVIEST = 1_500_000  # bytes of a page with all that it loads
LOADING_RELS = {"stylesheet", "preload", "prefetch", "modulepreload", "icon", "manifest",
                "preconnect", "dns-prefetch", "shortcut", "apple-touch-icon"}  # fmt: skip
URL_IN_CSS = re.compile(r"""url\(\s*(['"]?)(.*?)\1\s*\)|@import\s+(['"])(.*?)\3""")
# A script names another host without harm in a comment or a namespace, but not where it loads.
LOAD_IN_JS = re.compile(
    r"""(?:\b(?:fetch|import|importScripts|Worker|EventSource|WebSocket|open|sendBeacon)\s*\(
    |\bfrom\b|\.(?:src|href)\s*=)[^;\n]{0,40}?["'`]((?:\w+:)?//[^"'`]+)""",
    re.VERBOSE,
)


class Page(HTMLParser):
    """What the checks need to know of a page, each fact with its line."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors = {}  # ids and names, and where they are first
        self.repeated = []  # ids that are there already
        self.links = []  # what a reader can go to
        self.loads = []  # what the browser fetches by itself
        self.wordless = []
        self.strip = []  # (line, URL) of each entry; the URL of the page itself is ""
        self.near = {}  # "prev" and "next": (line, URL)
        self._svg = None  # a picture for which no words have been seen yet
        self._style = self._strip = False
        self.feed(text)
        self.close()
        if self._svg:
            self.wordless.append(self._svg)

    def handle_starttag(self, tag, attributes):
        line, facts = self.getpos()[0], {name: value or "" for name, value in attributes}
        classes = facts.get("class", "").split()
        if name := facts.get("id"):
            if name in self.anchors:
                self.repeated.append((line, name))
            self.anchors.setdefault(name, line)
        if tag == "a" and facts.get("name"):
            self.anchors.setdefault(facts["name"], line)
        self._collect_urls(tag, facts, line)
        hidden = facts.get("aria-hidden") == "true" or facts.get("role") in ("presentation", "none")
        if tag == "img" and not facts.get("alt", "").strip() and not hidden:
            self.wordless.append((line, facts.get("src", "")))
        if tag == "svg" and facts.get("role") == "img":
            words = facts.get("aria-label", "").strip() or facts.get("aria-labelledby")
            self._svg = None if words else (line, "svg")
        if tag == "title":
            self._svg = None
        self._style = tag == "style"
        if tag == "nav" and "strip" in classes:
            self._strip = True
        elif self._strip and (tag == "a" or facts.get("aria-current") == "page"):
            self.strip.append((line, facts.get("href", "")))
        for way in ("prev", "next"):
            if tag == "a" and f"{way}-page" in classes:
                self.near[way] = line, facts.get("href", "")

    def handle_endtag(self, tag):
        self._strip = self._strip and tag != "nav"
        if tag == "style":
            self._style = False
        if tag == "svg" and self._svg:
            self.wordless.append(self._svg)
            self._svg = None

    def handle_data(self, data):
        if self._style:
            self.loads += [(self.getpos()[0], url) for url in urls_of_css(data)]

    def _collect_urls(self, tag, facts, line):
        rels = set(facts.get("rel", "").lower().split())
        if tag in ("a", "area") and "href" in facts:
            self.links.append((line, facts["href"]))
        elif tag in ("use", "image"):
            self.loads += [(line, facts[k]) for k in ("href", "xlink:href") if k in facts]
        elif tag == "link" and "href" in facts:
            (self.loads if rels & LOADING_RELS else self.links).append((line, facts["href"]))
        for name in ("src", "poster", *(["data"] if tag == "object" else [])):
            if name in facts:
                self.loads.append((line, facts[name]))
        for candidate in facts.get("srcset", "").split(","):
            self.loads += [(line, url) for url in candidate.split()[:1]]
        for name in ("style", "clip-path", "fill", "stroke", "mask", "filter", "marker-end"):
            self.loads += [(line, url) for url in urls_of_css(facts.get(name, ""))]


class Site:
    """A folder of HTML; `problems` grow while it is checked."""

    def __init__(self, folder: Path):
        self.folder = folder.resolve()
        self.shown = folder  # as messages name it
        self.problems, self.links = [], 0
        self._places, self._loads = {}, {}  # what is asked for again on every page
        self.pages = {
            path.relative_to(self.folder).as_posix(): Page(path.read_text(encoding="utf-8"))
            for path in sorted(self.folder.rglob("*.html"))
        }
        if not self.pages:
            self.say(".", 1, "no page here: build the site first (make docs)")

    def say(self, file, line, message):
        problem = Problem((self.shown / file).as_posix(), line, message)
        if problem not in self.problems:  # many pages load the same style sheet
            self.problems.append(problem)

    def check(self):
        weights = {}
        for name, page in self.pages.items():
            for line, twin in page.repeated:
                first = page.anchors[twin]
                self.say(name, line, f"id {twin!r} is on line {first} already: rename one")
            for line, what in page.wordless:
                message = f"a picture without words, {what}: give it alt or aria-label"
                self.say(name, line, message)
            for line, url in page.links:
                self.follow(name, line, url)
            weights[name] = self.weigh(name, page)
            if weights[name] > HEAVIEST:
                limit = f"more than {HEAVIEST / 1e6:.1f} MB: move something to a page of its own"
                self.say(name, 1, f"{weights[name] / 1e6:.2f} MB with all that it loads, {limit}")
        self.check_series()
        return weights

    def follow(self, name, line, url):
        """The file of the site that a link leads to; None if it leads out of it, or nowhere."""
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            return None
        self.links += 1
        if parts.path.startswith("/"):
            self.say(name, line, f"{url} works at the root of a host only: make it relative")
            return None
        target = self.file_of(name, url)
        if target is None:
            self.say(name, line, f"{url} leads to no file of the site: mend or drop the link")
        elif target in self.pages and parts.fragment not in ("", "top"):
            anchor = unquote(parts.fragment)
            if anchor not in self.pages[target].anchors:
                self.say(name, line, f"{url}: nothing in {target} has the id {anchor!r}: mend it")
        return target

    def file_of(self, name, url):
        """`url`, as `name` has it, as a path of the site; None if there is no such file."""
        path = unquote(urlsplit(url).path)
        if not path:
            return name
        if (name, path) not in self._places:
            target = (self.folder / name).parent / path
            if target.is_dir():
                target /= "index.html"
            target = target.resolve()
            inside = target.is_relative_to(self.folder) and target.is_file()
            self._places[name, path] = inside and target.relative_to(self.folder).as_posix()
        return self._places[name, path] or None

    def weigh(self, name, page):
        """Bytes of a page with all that it loads, each file once; says what is not there."""
        files, waiting = {name}, [(name, line, url) for line, url in page.loads]
        while waiting:
            file, line, url = waiting.pop()
            if urlsplit(url).scheme in ("data", "about") or not url:
                continue
            if urlsplit(url).scheme or urlsplit(url).netloc:
                self.say(file, line, f"{url} is loaded from another host: keep a copy here")
                continue
            target = self.file_of(file, url)
            fragment = unquote(urlsplit(url).fragment)
            if target is None or url.startswith("/"):
                self.say(file, line, f"{url} is loaded, but is no file of the site: add it")
            elif target == name and fragment and fragment not in page.anchors:
                self.say(file, line, f"{url}: nothing on the page has that id: mend it")
            elif target not in files:
                files.add(target)
                waiting += self.loads_of(target)
        return sum((self.folder / file).stat().st_size for file in files)

    def loads_of(self, file):
        """What a style sheet or a script loads in its turn: `(file, line, URL)`."""
        if file not in self._loads:
            self._loads[file] = found = []
            if file.endswith((".css", ".js")):
                text = (self.folder / file).read_text(encoding="utf-8")
                find = urls_of_css if file.endswith(".css") else urls_of_js
                for number, line in enumerate(text.split("\n"), 1):
                    found += [(file, number, url) for url in find(line)]
        return self._loads[file]

    def check_series(self):
        """The strip is on all pages of the folder, and lists those that begin with a number."""
        pages = [name for name in self.pages
                 if re.fullmatch(r"series/(?!index\.)[^/]+\.html", name)]  # fmt: skip
        series = [name for name in pages if name[len("series/")].isdigit()]
        for name in pages:
            page = self.pages[name]
            order = [self.file_of(name, url) for _, url in page.strip]
            line = page.strip[0][0] if page.strip else 1
            here = [url for _, url in page.strip].count("")
            if not page.strip:
                self.say(name, 1, "no strip of the series above it: see docs/_ext/strip.py")
            elif sorted(map(str, order)) != series or here != (name in series):
                wanted, listed = ", ".join(series), ", ".join(map(str, order))
                self.say(name, line, f"the strip lists {listed}; the series is {wanted}: mend it")
            elif name in series:
                self.check_neighbours(name, page, order)
            if name not in series:
                continue
            notebooks = [url for _, url in page.links if url.endswith(".ipynb")]
            if not any(self.file_of(name, url) for url in notebooks):
                self.say(name, 1, "no notebook to download: is it made from docs/pages?")

    def check_neighbours(self, name, page, order):
        here = order.index(name)
        for way, index in (("prev", here - 1), ("next", here + 1)):
            wanted = order[index] if 0 <= index < len(order) else None
            line, url = page.near.get(way, (1, None))
            found = self.file_of(name, url) if url is not None else None
            if wanted and found != wanted:
                message = f"its {way} page is {found}, and {wanted} in the strip: order them alike"
                self.say(name, line, message)


def urls_of_css(text: str) -> list[str]:
    return [found[1] or found[3] for found in URL_IN_CSS.findall(text)]


def urls_of_js(text: str) -> list[str]:
    return LOAD_IN_JS.findall(text)


def check(folder: Path) -> tuple[list[Problem], str]:
    """The problems of the site in `folder`, and its figures in one line."""
    site = Site(folder)
    weights = site.check()
    heaviest = max(weights, key=weights.get, default=None)
    files = sum(1 for path in site.folder.rglob("*") if path.is_file())
    figures = f"{len(site.pages)} pages, {files} files, {site.links} links within the site"
    if heaviest:
        figures += f"; the heaviest page is {heaviest}, {weights[heaviest] / 1e6:.2f} MB"
    return site.problems, f"{figures}; {len(site.problems)} problems"

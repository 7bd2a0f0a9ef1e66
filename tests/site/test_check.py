"""The checks of a finished site, tools/pages/site.py: each mistake, in one that is right."""

import re

import pytest

from tools.pages import site as checker

PAGE = """\
<html><head>
<link rel="stylesheet" href="../_static/look.css?v=1">
<link rel="next" href="1_b.html">
<script src="../_static/do.js"></script>
<style>body { background: url("../_static/back.png") }</style>
</head><body>
<nav class="strip">STRIP</nav>
<h1 id="top-of-it">Title</h1>
<p><a href="#top-of-it">up</a> <a href="../index.html#here">home</a> <a href="#">top</a>
<a href="https://elsewhere.org/x">elsewhere</a> <a href="mailto:a@b.org">mail</a></p>
<img src="data:image/png;base64,AA" alt="A dot"> <img src="../_static/back.png" alt="A back">
<svg role="img" aria-label="A line"><use href="#shape"/><path id="shape"/></svg>
<svg role="img"><title>Another line</title><path d=""/></svg>
<svg><path d="M0 0"/></svg> <img src="../_static/back.png" alt="" aria-hidden="true">
<a href="../_downloads/1/NAME.ipynb" download="">notebook</a>
NEAR
</body></html>
"""
STRIP = {
    "0_a": '<strong aria-current="page">A</strong> || <a href="1_b.html">B</a>',
    "1_b": '<a href="0_a.html">A</a> || <strong aria-current="page">B</strong>',
}
NEAR = {
    "0_a": '<a class="next-page" href="1_b.html">B</a>',
    "1_b": '<a class="prev-page" href="0_a.html">A</a>',
}


@pytest.fixture
def folder(tmp_path):
    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("_static/look.css", "/* https://elsewhere.org */ @import 'more.css';\np { color: red }\n")
    write("_static/more.css", "@font-face { src: url(font.woff2) }\n")
    write("_static/font.woff2", "x" * 1000)
    write("_static/back.png", "x" * 500)
    write("_static/do.js", "// see https://elsewhere.org\nfetch('data.json');\n")
    home = '<h1 id="here">Home</h1><a name="old"></a> <a href="#old">old</a>'
    home += '<a href="series/0_a.html#top-of-it">A</a> <a href="series/">all</a>'
    write("index.html", home)
    write("series/index.html", "<p>All of them</p>")
    for name in STRIP:
        page = PAGE.replace("STRIP", STRIP[name]).replace("NEAR", NEAR[name])
        write(f"series/{name}.html", page.replace("NAME", name))
        write(f"_downloads/1/{name}.ipynb", "{}")
    beside = PAGE.replace("STRIP", '<a href="0_a.html">A</a> || <a href="1_b.html">B</a>')
    write("series/glossary.html", re.sub(".*(NEAR|ipynb).*", "", beside))
    return tmp_path


def edit(folder, name, old, new):
    text = (folder / name).read_text()
    assert text.count(old) >= 1
    (folder / name).write_text(text.replace(old, new, 1))


def test_a_good_site(folder):
    problems, figures = checker.check(folder)
    assert problems == []
    size = sum((folder / name).stat().st_size for name in (
        "series/0_a.html", "_static/look.css", "_static/more.css", "_static/font.woff2",
        "_static/back.png", "_static/do.js"))  # fmt: skip
    assert figures == (
        "5 pages, 12 files, 23 links within the site; "
        f"the heaviest page is series/0_a.html, {size / 1e6:.2f} MB; 0 problems"
    )


WRONG = [
    ("#top-of-it", "#nowhere", 9, "#nowhere: nothing in series/0_a.html has the id 'nowhere'"),
    ("index.html#here", "index.html#gone", 9, "nothing in index.html has the id 'gone'"),
    ("../index.html#here", "../index.htm", 9, "../index.htm leads to no file of the site"),
    ("../index.html#here", "../../x.html", 9, "../../x.html leads to no file of the site"),
    ("../index.html#here", "/index.html", 9, "works at the root of a host only"),
    ("_downloads/1/0_a.ipynb", "_downloads/1/a.zip", 15, "leads to no file of the site"),
    ("look.css", "lock.css", 2, "../_static/lock.css?v=1 is loaded, but is no file of the site"),
    ("do.js", "don't.js", 4, "is loaded, but is no file of the site: add it"),
    ('url("../_static/back.png', 'url("../_static/front.png', 5, "front.png is loaded, but is no"),
    ('id="shape"', 'id="shade"', 12, "#shape: nothing on the page has that id"),
    ('id="shape"', 'id="top-of-it"', 12, "id 'top-of-it' is on line 8 already: rename one"),
    ('alt="A dot"', "", 11, "a picture without words, data:image"),
    ('alt="A dot"', 'alt=" "', 11, "a picture without words, data:image"),
    ('aria-label="A line"', "", 12, "a picture without words, svg"),
    ("<title>Another line</title>", "", 13, "a picture without words, svg"),
    ("../_static/do.js", "https://cdn.org/do.js", 4, "cdn.org/do.js is loaded from another"),
    ("../_static/look.css?v=1", "//cdn.org/x.css", 2, "//cdn.org/x.css is loaded from another"),
    ('rel="next" href="1_b.html"', 'rel="preconnect" href="https://cdn.org"', 3, "another host"),
    ('rel="next" href="1_b.html"', 'rel="icon" href="https://cdn.org/i.ico"', 3, "another host"),
    ("data:image/png;base64,AA", "http://cdn.org/a.png", 11, "another host: keep a copy here"),
    ('alt="A dot"', 'alt="A dot" srcset="http://cdn.org/a.png 2x"', 11, "another host"),
    ('alt="A dot"', 'alt="A dot" style="background: url(//cdn.org/a.png)"', 11, "another host"),
    ('url("../_static', 'url("https://cdn.org', 5, "another host"),
    ('<nav class="strip">', "<nav>", 1, "no strip of the series"),
    ('<a href="1_b.html">B</a></nav>', "</nav>", 7, "strip lists series/0_a.html; the series is"),
    ('<strong aria-current="page">A</strong>', '<a href="0_a.html">A</a>', 7, "the strip lists"),
    ('next-page" href="1_b.html"', 'next-page" href="0_a.html"', 16, "its next page is"),
    ('class="next-page"', "", 1, "its next page is None, and series/1_b.html in the strip"),
    ("notebook</a>", "notebook</a>" + "x" * 1_500_000, 1, "1.50 MB with all that it loads, more"),
]  # fmt: skip


@pytest.mark.parametrize("old, new, line, message", WRONG, ids=[case[3] for case in WRONG])
def test_a_mistake_in_a_page(folder, old, new, line, message):
    edit(folder, "series/0_a.html", old, new)
    problems, figures = checker.check(folder)
    mine = [problem for problem in problems if message in problem.message]
    assert [problem.line for problem in mine] == [line], problems
    assert mine[0].file == f"{folder}/series/0_a.html"
    assert re.search(rf"; {len(problems)} problems$", figures)


def test_no_notebook(folder):
    edit(folder, "series/0_a.html", '<a href="../_downloads/1/0_a.ipynb" download="">', "<a>")
    (problem,) = checker.check(folder)[0]
    assert "no notebook to download" in problem.message


@pytest.mark.parametrize(
    "name, old, new, message",
    [
        ("look.css", "p {", "p { background: url( 'https://cdn.org/b.png' );", "from another host"),
        ("look.css", "@import 'more", "@import '//cdn.org/more", "from another host"),
        ("more.css", "font.woff2", "front.woff2", "front.woff2 is loaded, but is no file"),
        ("do.js", "'data.json'", "'https://cdn.org/data.json'", "from another host"),
        ("do.js", "fetch('data.json')", 'script.src = "//cdn.org/x.js"', "from another host"),
        (
            "do.js",
            "fetch('data.json')",
            "import x from `https://cdn.org/x.js`",
            "from another host",
        ),
    ],
)
def test_what_a_style_sheet_or_a_script_loads(folder, name, old, new, message):
    edit(folder, f"_static/{name}", old, new)
    (problem,) = checker.check(folder)[0]  # said once, though two pages load it
    assert message in problem.message and problem.file == f"{folder}/_static/{name}"


def test_a_page_that_is_gone_and_no_site_at_all(folder, tmp_path):
    (folder / "series/1_b.html").unlink()
    problems, _ = checker.check(folder)
    assert {"1_b.html leads to no file of the site: mend or drop the link"} <= {
        problem.message for problem in problems
    }
    (problem,), figures = checker.check(tmp_path / "_static")
    assert "build the site first" in problem.message and "0 pages" in figures

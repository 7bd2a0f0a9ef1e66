"""The site's diffs and commands in a real browser: what it copies, and side by side."""

import re

import pytest

from tests.processes import ROOT
from tests.site import SITE, pages
from tests.site.test_browser import check_accessible, check_width

DIFFS = pages('<div class="lesson-diff">')
LINE = "all => all.map(line => [line.tagName, +line.dataset.n, line.textContent])"


# Of each block what its button copies, or null if it has none to see.
COPIED = """async blocks => {
    const copied = [];
    for (const block of blocks) {
        const button = block.querySelector("button.copybtn");
        await navigator.clipboard.writeText("nothing was copied");
        const seen = getComputedStyle(button).display != "none";
        if (seen) button.click();
        copied.push(seen ? await navigator.clipboard.readText() : null);
    }
    return copied;
}"""


@pytest.mark.parametrize("name", pages('class="run highlight-console'))
def test_copying_copies_what_one_can_use(window, name):
    """Of a diff the new code, of a command neither prompt nor output, of a recipe the file."""
    page = window(name)
    for diff in page.locator(".lesson-diff:has(.stage)").all():
        whole = diff.locator("details.stage .l")
        script = [text.removesuffix("\n") for _, _, text in whole.evaluate_all(LINE)]
        blocks = diff.locator("> .highlight")
        for block, copied in zip(blocks.all(), blocks.evaluate_all(COPIED), strict=True):
            lines = block.locator(".l:not(.twin)").evaluate_all(LINE)
            numbers = [number for tag, number, _ in lines if tag != "DEL"]
            expected = "\n".join(script[numbers[0] - 1 : numbers[-1]]) if numbers else None
            assert copied == expected, lines[0]
    blocks = page.locator(".run-block:not(.recipe) .highlight")
    texts = blocks.locator("pre").evaluate_all("all => all.map(one => one.textContent)")
    for text, copied in zip(texts, blocks.evaluate_all(COPIED), strict=True):
        commands = re.findall(r"(?m)^\$ ((?:.* \\\n)*.*)$", text)
        assert re.sub(r"\n{2,}", "\n", copied.strip()) == "\n".join(commands)
    files = {path.read_text(encoding="utf-8").strip() for path in ROOT.glob("launch/*.*")}
    for copied in page.locator(".recipe .highlight").evaluate_all(COPIED):
        assert copied.strip() in files


def columns(page):
    """Where the removed and the added lines begin, in the first edit that has both."""
    return page.evaluate("""() => {
        const diff = [...document.querySelectorAll(".lesson-diff > .highlight pre")].find(
            pre => pre.querySelector("del") && pre.querySelector("ins"));
        return ["del", "ins"].map(tag => diff.querySelector(tag).getBoundingClientRect().left);
    }""")


def test_side_by_side_is_remembered_on_the_next_page(window):
    with_both = [name for name in DIFFS if "<del class" in (SITE / name).read_text()]
    page = window(with_both[0], width=1600)
    removed, added = columns(page)
    assert removed == added
    page.get_by_role("button", name="side by side").first.click()
    page.goto(with_both[1])
    removed, added = columns(page)
    assert added > removed + 400
    check_width(page)
    check_accessible(page)
    pressed = page.locator(".diff-views button[aria-pressed=true]").all_inner_texts()
    assert set(pressed) == {"side by side"}
    page.set_viewport_size({"width": 390, "height": 844})  # no room: one column, and no switch
    removed, added = columns(page)
    assert removed == added and not page.locator(".diff-views").first.is_visible()
    check_width(page)


@pytest.mark.parametrize("view", ["unified", "side by side"])
def test_selecting_a_diff_selects_no_line_numbers(window, view):
    page = window(DIFFS[0], width=1600)
    page.get_by_role("button", name=view).first.click()
    block = page.locator(".lesson-diff > .highlight:has(ins)").first
    rows = block.locator(".l:visible")
    block.evaluate("block => block.scrollIntoView({block: 'center', behavior: 'instant'})")
    rows.first.hover(position={"x": 2, "y": 5})  # unlike the mouse, waits until nothing moves
    page.mouse.down()
    end = rows.last.bounding_box()
    rows.last.hover(position={"x": end["width"] - 2, "y": end["height"] - 2})
    page.mouse.up()
    selected = page.evaluate("getSelection().toString()").split("\n")
    code = {text.removesuffix("\n") for _, _, text in rows.evaluate_all(LINE)}
    assert len(selected) > 2 and set(selected[1:-1]) <= code | {""}  # the ends may be cut

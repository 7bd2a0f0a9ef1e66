"""Every page in a real browser: its weight, wide and narrow, light and dark, for everyone."""

import pytest

from tests.site import pages

# Check one of all code pieces with the same classes, because they look and work alike. Keep those
# with more than a class, such as an id. Some pages have ten thousand pieces.
ONE_OF_EACH_KIND = """() => {
    const seen = new Set();
    for (const piece of [...document.querySelectorAll(".highlight pre *")].reverse()) {
        const more = piece.getAttributeNames().some(name => name !== "class");
        if (more || piece.childElementCount) continue;
        let kind = "";
        for (let at = piece; at; at = at.parentElement) kind += `${at.tagName}.${at.className} `;
        if (seen.has(kind)) piece.replaceWith(piece.textContent);
        seen.add(kind);
    }
}"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
HEAVIEST = 1_500_000  # bytes of a page with everything it loads
WEIGHT = """["navigation", "resource"].flatMap(kind => performance.getEntriesByType(kind))
    .reduce((sum, one) => sum + one.decodedBodySize, 0)"""


def check_weight(page):
    weight = page.evaluate(WEIGHT)
    limit = f"more than {HEAVIEST:,}: move something to a page of its own"
    assert weight <= HEAVIEST, f"{page.url}: {weight:,} bytes with all that it loads, {limit}"


def check_width(page):
    width, room = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
    assert width <= room, f"{page.url} is {width} px wide in a window of {room}"


def check_accessible(page, context=None, **options):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options["resultTypes"] = ["violations"]  # otherwise it reports megabytes of passes
    found = [
        f"{page.url}: {violation['id']}: {violation['help']}: {node['html'][:200]}"
        for violation in axe.Axe().run(page, context, options).response["violations"]
        for node in violation["nodes"]
    ]
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("name", pages())
def test_a_page(window, name):
    page = window(name)
    page.wait_for_load_state("networkidle")
    check_weight(page)
    check_width(page)
    page.evaluate(ONE_OF_EACH_KIND)
    check_accessible(page, rules={"duplicate-id": {"enabled": True}})
    light = page.evaluate(BACKGROUND)
    page.emulate_media(color_scheme="dark")
    page.evaluate("Promise.all(document.getAnimations().map(one => one.finished))")
    assert page.evaluate(BACKGROUND) != light
    check_accessible(page, runOnly=["color-contrast"])
    page.set_viewport_size({"width": 390, "height": 844})
    check_width(page)

"""The front page: the recorded terminal, what to click, what it says of each page."""

import re

import pytest

from tests.site import SITE, pages

pytestmark = [
    pytest.mark.site,
    pytest.mark.skipif(not pages(), reason="the site is not built: make docs"),
]
SHOWN = "[...document.querySelectorAll('.terminal [data-at]')].filter(one => !one.hidden).length"
ALL = "document.querySelectorAll('.terminal [data-at]').length"
TIMES = "[...document.querySelectorAll('.terminal [data-at]')].map(one => Number(one.dataset.at))"


def terminal_of(page):
    return re.sub("<[^>]+>", "", re.search(r'(?s)<div class="terminal">.*?</div>', page)[0])


def test_the_terminal_is_the_run_of_its_page():
    front = terminal_of((SITE / "index.html").read_text(encoding="utf-8"))
    there = (SITE / "series/3_fault_tolerance.html").read_text(encoding="utf-8")
    there = re.sub("<[^>]+>", "", there)
    lines = [line for line in front.splitlines() if line.startswith(("Resuming", "--- kill"))]
    assert len(lines) == 4  # two kills
    speeds = re.findall(r"Epoch +\d \| loss .* samples/s", front)
    for line in [*lines, *speeds[:3]]:  # the speed differs from run to run
        assert f" s | {line}" in there, line


def test_the_terminal_plays_pauses_and_shows_all(window):
    """By a clock that only the test moves on, since the recording plays in real time."""
    page = window("index.html")
    page.clock.install()
    page.reload()
    total, times = page.evaluate(ALL), page.evaluate(TIMES)
    half = 500 * (times[0] + times[-1])  # milliseconds: the first line may come late
    page.locator(".terminal").scroll_into_view_if_needed()
    page.wait_for_function(f"{SHOWN} < {total}")  # it begins by itself
    page.clock.run_for(half)
    button = page.locator(".terminal-bar button").first
    assert button.inner_text() == "Pause"
    button.focus()
    page.keyboard.press("Enter")
    shown = page.evaluate(SHOWN)
    assert button.inner_text() == "Continue" and 3 < shown < total
    clock = page.locator(".terminal-bar span")
    stopped = clock.inner_text()
    page.clock.run_for(half)
    assert page.evaluate(SHOWN) == shown and clock.inner_text() == stopped
    page.keyboard.press("Enter")
    page.clock.run_for(1000 * times[-1] - 1.2 * half)
    assert shown <= page.evaluate(SHOWN) < total and clock.inner_text() != stopped
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate(SHOWN) == total and button.inner_text() == "Play"


def test_the_terminal_rests_for_a_reader_who_wants_less_motion(window):
    page = window("index.html")
    page.emulate_media(reduced_motion="reduce")
    page.clock.install()
    page.reload()
    page.locator(".terminal").scroll_into_view_if_needed()
    page.clock.run_for(3000)
    assert page.evaluate(SHOWN) == page.evaluate(ALL)
    page.locator(".terminal-bar button").first.click()  # it plays if asked
    page.clock.run_for(1000)
    assert page.evaluate(SHOWN) < page.evaluate(ALL)


def test_the_terminal_is_whole_without_javascript(browser, host):
    context = browser.new_context(java_script_enabled=False, base_url=host)
    page = context.new_page()
    page.goto("index.html")
    assert page.locator(".terminal [data-at]").last.is_visible()
    assert page.locator(".terminal-bar").count() == 0
    context.close()


def test_the_front_page_lists_every_page_of_the_series_with_its_time():
    text = (SITE / "index.html").read_text(encoding="utf-8")
    link = r'<a class="reference internal" href="(series/\w+\.html)">[^<]*</a>, (\d+) minutes'
    listed = re.findall(link, text)
    assert sorted(name for name, _ in listed) == pages('<div class="place">')
    for name, minutes in listed:
        there = (SITE / name).read_text(encoding="utf-8")
        assert f"about {minutes} minutes</div>" in there


def test_the_contents_of_a_page_are_beside_it_at_1280(window):
    page = window("series/2_multigpu.html", 1280)
    links = page.locator(".sidebar-tree .toc-tree a:visible")
    titles = page.locator("article section section > h2")
    assert links.count() == titles.count() > 5
    assert links.first.bounding_box()["x"] >= 0


def test_the_contents_close_on_a_phone_when_an_entry_is_chosen(window):
    page = window("series/2_multigpu.html", 390)
    entry = page.locator(".toc-tree a", has_text="Distributing input data")
    page.locator(".nav-overlay-icon").first.click()
    entry.click()
    page.wait_for_function(
        "document.querySelector('.sidebar-drawer').getBoundingClientRect().right <= 0"
    )
    page.wait_for_function(  # it scrolls smoothly
        "Math.abs(document.querySelector(':target').getBoundingClientRect().top) < 200"
    )

"""The front page's recorded terminal, and the contents beside a page."""

import pytest

LINES = "[...document.querySelectorAll('.terminal [data-at]')]"
SHOWN = f"{LINES}.filter(one => !one.hidden).length"
TIMES = f"{LINES}.map(one => Number(one.dataset.at))"


@pytest.fixture
def page(window):
    """By a clock that only the test moves on, since the recording plays in real time."""
    page = window("index.html")
    page.clock.install()
    return page


def test_the_terminal_plays_pauses_and_shows_all(page):
    page.reload()
    times = page.evaluate(TIMES)
    total, half = len(times), 500 * (times[-1] - times[0])  # milliseconds
    page.locator(".terminal").scroll_into_view_if_needed()
    page.wait_for_function(f"{SHOWN} < {total}")  # it begins by itself
    page.clock.run_for(half)
    button = page.locator(".terminal-bar button").first
    assert button.inner_text() == "Pause"
    button.focus()
    page.keyboard.press("Enter")
    shown = page.evaluate(SHOWN)
    assert button.inner_text() == "Continue" and 0 < shown < total
    page.clock.run_for(half)
    assert page.evaluate(SHOWN) == shown
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate(SHOWN) == total and button.inner_text() == "Play"


def test_the_terminal_rests_for_a_reader_who_wants_less_motion(page):
    page.emulate_media(reduced_motion="reduce")
    page.reload()
    page.locator(".terminal").scroll_into_view_if_needed()
    page.clock.run_for(3000)
    assert page.evaluate(SHOWN) == len(page.evaluate(TIMES))


def test_the_contents_of_a_page_are_beside_it_at_1280(window):
    page = window("series/2_multigpu.html", 1280)
    links = page.locator(".sidebar-tree .toc-tree a:visible")
    assert links.count() == page.locator("article section section > h2").count() > 5
    assert links.first.bounding_box()["x"] >= 0


def test_the_contents_close_on_a_phone_when_an_entry_is_chosen(window):
    page = window("series/2_multigpu.html", 390)
    page.locator(".nav-overlay-icon").first.click()
    page.locator(".toc-tree a", has_text="Distributing input data").click()
    page.wait_for_function(
        "document.querySelector('.sidebar-drawer').getBoundingClientRect().right <= 0"
    )
    page.wait_for_function(  # it scrolls smoothly
        "Math.abs(document.querySelector(':target').getBoundingClientRect().top) < 200"
    )

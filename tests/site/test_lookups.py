"""The pages to look things up: the filter of the symptoms, search results, the cheat sheet."""

import re

import pytest

SYMPTOMS, SHEET = "series/symptoms.html", "series/cheat_sheet.html"


def entries(page):
    """The titles in the list that can be seen, which must be those of the entries below it."""
    links = page.locator(".entries a:visible").all_inner_texts()
    titles = page.locator("section section section > :is(h2, h3):visible").all_inner_texts()
    assert links == [title.removesuffix("#") for title in titles]
    return links


def test_filtering_the_symptoms_by_keyboard(window):
    page = window(SYMPTOMS)
    box, status = page.get_by_label("Filter the entries"), page.locator(".filter [role=status]")
    every = entries(page)
    assert len(every) > 30 and status.inner_text() == f"{len(every)} of {len(every)} entries"
    box.focus()
    page.keyboard.type("Signal 9 (SIGKILL) received by PID 4711")  # the page has another number
    assert entries(page) == ["ChildFailedError … Signal 9 (SIGKILL) received by PID: no restart"]
    assert status.inner_text() == f"1 of {len(every)} entries"
    assert not page.get_by_role("heading", name="Described", exact=True).is_visible()
    page.keyboard.press("Escape")
    assert box.input_value() == "" and entries(page) == every
    page.keyboard.type("preemption")  # a term of the index, in no text
    assert entries(page) == ["SignalException: Process 123 got signal: 15"]
    page.evaluate("location.hash = '#rendezvoustimeouterror'")  # as a link to a hidden entry does
    page.locator("#rendezvoustimeouterror h3").wait_for()
    assert entries(page) == every
    page.wait_for_function(  # it scrolls smoothly
        "Math.abs(document.querySelector(':target').getBoundingClientRect().top) < 100"
    )
    box.fill("qwertz")
    assert entries(page) == [] and status.inner_text() == f"0 of {len(every)} entries"


def test_without_javascript_all_is_there(browser, host):
    page = browser.new_page(base_url=host, java_script_enabled=False)
    page.goto("index.html")
    assert page.locator(".terminal [data-at]").last.is_visible()
    page.goto(SYMPTOMS)
    assert page.locator("#filter").count() == 0
    page.locator(".entries a").last.click()
    assert page.url.endswith("#" + page.locator("section section section").last.get_attribute("id"))
    page.close()


@pytest.mark.parametrize(
    "words, entry",
    [
        ("Address already in use", "The server socket has failed to listen"),
        (
            "RuntimeError: [/a/b.cc:7] Timed out waiting 60000ms for recv operation to complete",
            "Timed out waiting",
        ),
        ("local rank", "local rank"),  # a term of the glossary
    ],
)
def test_the_search_leads_to_the_entry_of_an_error(window, words, entry):
    page = window("index.html")
    page.get_by_role("textbox", name="Search").first.fill(words)
    page.keyboard.press("Enter")
    page.get_by_text(re.compile("Search finished|did not match")).first.wait_for()
    link = page.locator("#search-results ul.search li a").first.evaluate("link => link.href")
    page.goto(link)
    assert page.locator(":target").inner_text().startswith(entry)


def test_the_cheat_sheet_prints_on_one_sheet(window):
    assert len(re.findall(rb"/Type\s*/Page\b", window(SHEET).pdf(format="A4"))) == 1

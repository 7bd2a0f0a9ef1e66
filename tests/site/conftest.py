"""The built site, served on its own port, and a browser to look at it."""

import contextlib
import http.server
import shutil
import threading
from functools import partial

import pytest

from tests.site import SITE

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 120_000  # milliseconds per browser action, to catch hangs


def pytest_itemcollected(item):
    """Mark the tests of this folder."""
    item.add_marker("site")
    if not SITE.is_dir():
        item.add_marker(pytest.mark.skip("the site is not built: make docs"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def host():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: make docs installs it"
    )
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if not path:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM)} (apt install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture
def window(browser, host):
    """Opens a page of the site in its own window. Errors in it fail the test."""
    with contextlib.ExitStack() as stack:
        trouble = []

        def open_window(name, width=1440):
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme="light", base_url=host,
                permissions=["clipboard-read", "clipboard-write"],
            )  # fmt: skip
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            watch(page, host, trouble)
            page.goto(name)
            return page

        yield open_window
    assert not trouble, "\n".join(trouble)


def watch(page, host, trouble):
    """Record a page's errors, its failed requests, and its requests to other hosts."""

    def asked(request):
        if not request.url.startswith((host, "data:", "blob:")):
            trouble.append(f"asks another host: {request.url}")

    def said(message):
        if message.type in ("error", "warning"):
            trouble.append(f"{page.url}: console {message.type}: {message.text}")

    def answered(response):
        if response.status >= 400:
            trouble.append(f"{page.url}: {response.status} for {response.url}")

    def failed(request):
        # The browser aborts requests when it leaves a page, by a search for example.
        if request.failure != "net::ERR_ABORTED":
            trouble.append(f"failed: {request.url}: {request.failure}")

    page.on("request", asked)
    page.on("response", answered)
    page.on("requestfailed", failed)
    page.on("console", said)
    page.on("pageerror", lambda error: trouble.append(f"{page.url}: {error}"))

"""Chromium without a window, on a page of this machine; whatever goes wrong on the page is remembered."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = (
    f"none of {', '.join(NAMES)} is on the path; the page is tested in a real browser: install one, on Debian with "
    "'apt-get update && apt-get install -y chromium'"
)
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """Return the program; fail with how to install it when there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, MISSING
    return found


@dataclass
class Visit:
    """A page in a profile of its own, what it asked for, and what went wrong on it."""

    page: Page
    urls: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def number(self, selector: str) -> float:
        return float(self.text(selector))

    def send(self, text: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.get_by_role("button", name="Send").click()

    def wait_answered(self, count: int = 1) -> None:
        """Wait until so many answers have ended."""
        ended = self.page.locator(".theirs[aria-busy=false] .foot")
        ended.nth(count - 1).wait_for(timeout=60_000)


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium; end it afterwards."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), headless=True, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def visit(browser: Browser, url: str, **context: object) -> Iterator[Visit]:
    """Open a page with an empty profile.

    Args:
        browser: an open one.
        url: of the page.
        context: of playwright: `viewport`, `color_scheme`, and so on.
    """
    profile = browser.new_context(**context)
    page = profile.new_page()
    made = Visit(page)
    page.on("request", lambda request: made.urls.append(request.url))
    page.on("console", lambda said: made.faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: made.faults.append(str(error)))
    page.goto(url)
    try:
        yield made
    finally:
        profile.close()

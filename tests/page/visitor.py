"""Somebody who reads a page: a browser context of their own, and what they see and do."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

from tests.serving import ServerProcess

ARGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ARTEFACTS = Path(__file__).parents[1] / "artefacts"
WAIT_MS = 30_000

# What the browser itself says of a request that got no answer, or a refusal.
_NETWORK = re.compile(r"Failed to load resource|net::ERR_|ERR_CONNECTION|status of [45]\d\d")


class Visitor:
    """A page of its own, signed in by the printed address; `complaints`: what went wrong in it."""

    def __init__(
        self, browser: Browser, server: ServerProcess, *, signs_in: bool = True, **context: Any
    ) -> None:
        context.setdefault("viewport", {"width": 1200, "height": 820})
        self.context = browser.new_context(**context)
        self.server = server
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self._signs_in = signs_in
        self._watch(self.page)

    def _watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._hear)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _NETWORK.search(message.text):
            self.complaints.append(message.text)

    def open(self, place: str = "") -> None:
        """Signs in and goes to a place of the page."""
        if self._signs_in:
            self.page.goto(self.server.address)
            expect(self.page).not_to_have_url(re.compile("token="))
        if place or not self._signs_in:
            self.page.goto(f"{self.server.base}/{place}")

    def another(self, place: str = "") -> Page:
        """One more tab of the same browser."""
        page = self.context.new_page()
        self._watch(page)
        page.goto(f"{self.server.base}/{place}")
        return page

    def see(self, test_id: str) -> Locator:
        return self.page.get_by_test_id(test_id)

    def shoot(self, name: str) -> None:
        """Keeps a picture as an artefact of the run."""
        self.picture(self.page, name)

    @staticmethod
    def picture(page: Page, name: str) -> None:
        """Keeps a picture of any page."""
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=os.fspath(ARTEFACTS / f"{name}.png"))


def place_of(session_id: str, view: str = "", rest: str = "") -> str:
    """The address of a session's view, as the page writes it."""
    parts = [session_id, *([view] if view else []), *([rest] if rest else [])]
    return "#" + "/".join(quote(part, safe="") for part in parts)


def rows(page: Page) -> list[str]:
    """The ids of the entries that the page shows as messages, in order."""
    ids: list[str] = page.eval_on_selector_all(
        "[data-testid=message]", "rows => rows.map(row => row.dataset.entryId)"
    )
    return ids


def say(page: Page, text: str) -> None:
    page.get_by_test_id("composer").fill(text)
    page.get_by_test_id("send").click()

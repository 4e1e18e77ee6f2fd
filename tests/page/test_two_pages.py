"""Two pages on one session, in a real browser, and a server that is killed under them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.page.visitor import ARTEFACTS, WAIT_MS, rows, say
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block  # playwright drives the browser on an event loop of its own


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path, loop="shell") as running:
        yield running


def open_page(browser: Browser, address: str) -> tuple[Page, list[str]]:
    """A page of its own (with its own cookie), and what it complains about."""
    page = browser.new_context(viewport={"width": 1100, "height": 800}).new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    return page, complaints


def test_two_pages_agree_and_catch_up_after_the_server_was_killed(
    browser: Browser, server: ServerProcess
) -> None:
    one, complaints_one = open_page(browser, server.address)
    expect(one).not_to_have_url(re.compile("token="))
    one.get_by_test_id("new-session").click()
    say(one, "echo first-answer")
    transcript = one.get_by_test_id("transcript")
    expect(transcript).to_contain_text("first-answer", timeout=WAIT_MS)

    two, complaints_two = open_page(browser, server.address)
    two.get_by_test_id("session-item").first.click()
    expect(two.get_by_test_id("transcript")).to_contain_text("first-answer", timeout=WAIT_MS)

    say(two, "echo before-the-kill; sleep 60; echo never-reached")
    for page in (one, two):
        expect(page.get_by_test_id("transcript")).to_contain_text(
            "before-the-kill", timeout=WAIT_MS
        )
        expect(page.get_by_test_id("stop")).to_be_visible(timeout=WAIT_MS)

    server.kill()
    server.start()
    for page in (one, two):
        expect(page.get_by_test_id("resend")).to_be_visible(timeout=WAIT_MS)

    say(one, "echo after-the-kill")
    for page in (one, two):
        transcript = page.get_by_test_id("transcript")
        expect(transcript).to_contain_text("first-answer", timeout=WAIT_MS)
        expect(transcript).to_contain_text("after-the-kill", timeout=WAIT_MS)
        expect(page.get_by_test_id("stop")).to_be_hidden(timeout=WAIT_MS)
    shown = rows(one)
    assert shown == rows(two)
    assert len(shown) == len(set(shown)) > 0
    two.reload()
    expect(two.get_by_test_id("transcript")).to_contain_text("after-the-kill", timeout=WAIT_MS)
    assert rows(two) == shown
    ARTEFACTS.mkdir(exist_ok=True)
    for name, page in (("one", one), ("two", two)):
        page.screenshot(path=os.fspath(ARTEFACTS / f"two-pages-{name}.png"))
    assert complaints_one == complaints_two == []


def test_a_session_that_is_not_there_is_shown_once_it_comes(
    browser: Browser, server: ServerProcess
) -> None:
    page, complaints = open_page(browser, server.address)
    for session_id, problem in (("late", "no session"), ("..", "session id"), (".", "session id")):
        page.goto(f"{server.base}/#{session_id}")
        expect(page.get_by_test_id("session-problem")).to_contain_text(problem, timeout=WAIT_MS)
    page.goto(f"{server.base}/#late")
    expect(page.get_by_test_id("session-problem")).to_contain_text("late", timeout=WAIT_MS)

    with httpx.Client(base_url=server.base, headers=server.headers, timeout=30) as client:
        for said in ("here", "here-again"):
            client.post("/v1/sessions", json={"session_id": "late"}).raise_for_status()
            client.post("/v1/sessions/late/messages", json={"text": f"echo {said}-$((40 + 2))"})
            transcript = page.get_by_test_id("transcript")
            expect(transcript).to_contain_text(f"{said}-$", timeout=WAIT_MS)
            client.delete("/v1/sessions/late").raise_for_status()
            page.reload()
            expect(page.get_by_test_id("session-problem")).to_be_visible(timeout=WAIT_MS)
    assert complaints == []


def test_files_of_a_message_stand_below_each_other_and_nothing_of_them_runs(
    browser: Browser, server: ServerProcess
) -> None:
    page, complaints = open_page(browser, server.address)
    page_text = {"media_type": "text/html", "name": "<img src=x onerror=alert(1)>.html"}
    files = [{"type": "file", "data": "PGI+", **page_text}] * 2
    with httpx.Client(base_url=server.base, headers=server.headers, timeout=30) as client:
        client.post("/v1/sessions", json={"session_id": "files"}).raise_for_status()
        parts = [{"type": "text", "text": "true"}, *files]
        client.post("/v1/sessions/files/messages", json={"parts": parts}).raise_for_status()
    page.goto(f"{server.base}/#files")
    shown = page.get_by_test_id("transcript").get_by_text(".html")
    expect(shown).to_have_count(2, timeout=WAIT_MS)
    first, second = (each.bounding_box() for each in shown.all())
    assert first is not None
    assert second is not None
    assert second["y"] >= first["y"] + first["height"]
    assert complaints == []

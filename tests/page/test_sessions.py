"""The list of sessions: ten thousand of them, searched, alive, and deleted knowingly."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.entry import text
from perdure.testing import Fail, Hang, Say
from tests.page.conftest import SCRIPTED
from tests.page.visitor import WAIT_MS, Visitor, place_of
from tests.page.world import ask, store_sessions, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

LONGEST_FRAME = """async () => {
  const view = document.querySelector("[data-testid=session-scroller]");
  let longest = 0, before = performance.now(), drawn = 0;
  for (let top = 0; top < 30_000; top += 600) {
    view.scrollTop = top;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    longest = Math.max(longest, now - before);
    before = now;
    drawn = Math.max(drawn, document.querySelectorAll("[data-testid=session-item]").length);
  }
  return [longest, drawn];
}"""


def loaded(page: Page) -> int:
    return int(page.get_by_test_id("session-list").get_attribute("data-loaded") or 0)


def test_ten_thousand_sessions_scroll_smoothly(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("many")
    sessions = {f"session {n:05d}": (text(f"about {n}"),) for n in range(10_000)}
    store_sessions(folder, sessions)
    with ServerProcess(folder, loop=SCRIPTED) as server:
        visitor = Visitor(browser, server)
        visitor.open()
        page = visitor.page
        expect(visitor.see("session-item").first).to_contain_text("session 09999", timeout=WAIT_MS)
        longest, drawn = page.evaluate(LONGEST_FRAME)
        assert drawn < 60
        assert longest < 250  # no frame is waited for as if the page stood still
        assert 100 < loaded(page) < 2_000
        page.evaluate(
            """async () => {
              const view = document.querySelector("[data-testid=session-scroller]");
              const list = document.querySelector("[data-testid=session-list]");
              while (Number(list.dataset.loaded) < 10_000) {
                view.scrollTop = view.scrollHeight;
                await new Promise(done => setTimeout(done, 10));
              }
              view.scrollTop = view.scrollHeight;
            }"""
        )
        expect(visitor.see("session-item").last).to_contain_text("session 00000", timeout=WAIT_MS)
        assert visitor.see("session-item").count() < 60
        longest, _ = page.evaluate(LONGEST_FRAME)
        assert longest < 250

        visitor.see("filter").fill("session 00042")
        expect(visitor.see("session-item")).to_have_count(1, timeout=WAIT_MS)
        visitor.shoot("sessions-filter")
        visitor.see("session-item").locator("a").click()
        expect(visitor.see("message").first).to_contain_text("about 42", timeout=WAIT_MS)
        visitor.see("filter").fill("about 77")
        expect(visitor.see("session-item").first).to_contain_text("session 0", timeout=WAIT_MS)
        page.goto(f"{server.base}/#")
        visitor.see("filter").fill("no such thing")
        # While it looks, it says so; and that nothing was found is not that nothing is kept.
        expect(page.get_by_text("Looking through older sessions…")).to_be_visible(timeout=WAIT_MS)
        expect(page.get_by_role("heading", name="Choose a session")).to_be_visible()
        expect(page.get_by_text("No session is like that.")).to_be_visible(timeout=WAIT_MS)
        expect(page.get_by_role("heading", name="Choose a session")).to_be_visible()
        visitor.shoot("sessions-none-like-that")
        visitor.see("filter").fill("")
        expect(visitor.see("session-item").first).to_contain_text("session 09999", timeout=WAIT_MS)
        assert visitor.complaints == []


def test_the_list_is_alive_and_filtered_by_status(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    for name in ("one", "two", "three"):
        api.post("/v1/sessions", json={"session_id": name})
    visitor = visit()
    items = visitor.see("session-item")
    expect(items).to_have_count(3, timeout=WAIT_MS)
    ask(api, "one", Say("busy"), Hang())
    expect(items.first).to_have_attribute("data-session-id", "one", timeout=WAIT_MS)
    expect(items.first).to_have_attribute("data-status", "running", timeout=WAIT_MS)
    ask(api, "two", Fail("no luck"))
    visitor.see("filter-status").select_option("failed")
    expect(items).to_have_count(1, timeout=WAIT_MS)
    expect(items.first).to_have_attribute("data-session-id", "two")
    visitor.see("filter-status").select_option("running")
    expect(items).to_have_count(1, timeout=WAIT_MS)
    api.post("/v1/sessions/one/stop", json={}).raise_for_status()
    expect(items).to_have_count(0, timeout=WAIT_MS)  # it goes as soon as it is no longer that
    visitor.see("filter-status").select_option("")
    expect(items).to_have_count(3, timeout=WAIT_MS)
    api.post("/v1/sessions/one/fork", json={"session_id": "child"}).raise_for_status()
    expect(items).to_have_count(4, timeout=WAIT_MS)
    child = visitor.page.locator('[data-session-id="child"]')
    expect(child.get_by_title("Forked from one")).to_be_visible()
    visitor.shoot("sessions-alive")


def test_a_deletion_is_asked_for_once_with_what_will_be_lost(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    api.post("/v1/sessions", json={"session_id": "doomed"})
    ask(api, "doomed", text="the first words")
    until(api, "doomed", "idle")
    ask(api, "doomed", Say("busy"), Hang())
    ask(api, "doomed", text="waits")
    api.post("/v1/sessions/doomed/fork", json={"session_id": "child"}).raise_for_status()
    visitor = visit(place_of("doomed"))
    visitor.see("session-menu").click()
    visitor.see("delete").click()
    dialog = visitor.see("delete-dialog")
    expect(dialog).to_contain_text("the first words", timeout=WAIT_MS)
    for loss in ("entries of its journal", "turn that runs", "1 message", "1 session stays"):
        expect(visitor.see("losses")).to_contain_text(loss, timeout=WAIT_MS)
    visitor.shoot("sessions-delete")
    dialog.get_by_text("Keep it").click()
    assert api.get("/v1/sessions/doomed").status_code == 200
    visitor.see("session-menu").click()
    visitor.see("delete").click()
    visitor.see("delete-confirm").click()
    expect(visitor.see("session-item")).to_have_count(1, timeout=WAIT_MS)
    assert api.get("/v1/sessions/doomed").status_code == 404
    assert api.get("/v1/sessions/child").status_code == 200
    expect(visitor.page.get_by_text("Choose a session")).to_be_visible()


def test_sessions_are_called_by_how_they_begin(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit()
    visitor.see("new-session").click()
    visitor.see("composer").fill("What is the\nweather like?")
    visitor.see("send").click()
    name = "What is the weather like?"
    expect(visitor.see("session-item").first).to_contain_text(name, timeout=WAIT_MS)
    expect(visitor.page.get_by_role("heading", name=name)).to_be_visible()
    assert name in visitor.page.title()
    # So is its fork, whose id nobody chose.
    visitor.see("session-menu").click()
    visitor.see("fork").click()
    visitor.see("fork-confirm").click()
    expect(visitor.page.get_by_text("forked from")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.page.get_by_role("heading", name=name)).to_be_visible()
    expect(visitor.see("session-item").first).to_contain_text(name)
    visitor.shoot("sessions-fork")


def test_a_session_that_is_not_there_can_be_made(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(place_of("not yet/ü"))
    problem = visitor.see("session-problem")
    expect(problem.get_by_role("heading")).to_have_text("It is not there", timeout=WAIT_MS)
    visitor.shoot("sessions-not-there")
    visitor.see("make-it").click()
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    assert api.get("/v1/sessions/not%20yet%2F%C3%BC").status_code == 200


def test_a_wrong_address_says_what_to_do(browser: Browser, server: ServerProcess) -> None:
    page = browser.new_context().new_page()
    page.goto(f"{server.base}/?token=wrong")
    expect(page.get_by_role("heading")).to_contain_text("does not sign you in")
    expect(page.get_by_text("perdure serve")).to_be_visible()
    Visitor.picture(page, "wrong-token")
    page.get_by_role("link", name="go to Perdure").click()
    expect(page.get_by_test_id("unauthorised")).to_be_visible(timeout=WAIT_MS)

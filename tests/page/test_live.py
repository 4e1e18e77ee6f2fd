"""What comes while somebody looks: drawn once a frame, caught up after every kind of loss."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.server.access.token_file import add_token
from perdure.testing import Call, Hang, Say
from tests.page.proxy import Proxy
from tests.page.visitor import WAIT_MS, Visitor, place_of, rows, say
from tests.page.world import ask, path_ids, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

ALONE = "delete window.SharedWorker"
HIDEABLE = """
Object.defineProperty(document, "visibilityState", {
  get: () => window.isAway ? "hidden" : "visible",
});
"""
TURN_AWAY = (
    "isAway => { window.isAway = isAway; document.dispatchEvent(new Event('visibilitychange')); }"
)


class Far(Visitor):
    """A visitor behind a proxy."""

    def __init__(self, browser: Browser, server: ServerProcess, proxy: Proxy, **more: Any) -> None:
        self.proxy = proxy
        super().__init__(browser, server, **more)

    def open(self, place: str = "") -> None:
        self.page.goto(f"{self.proxy.base}/?token={self.server.token}")
        expect(self.page).not_to_have_url(re.compile("token="))
        self.page.goto(f"{self.proxy.base}/{place}")


@pytest.fixture
def proxy(server: ServerProcess) -> Iterator[Proxy]:
    with Proxy(server.port) as running:
        yield running


def see_all(page: Page, api: httpx.Client, session_id: str, last: str) -> None:
    """The page shows the whole path, each entry once, without having been loaded again."""
    expect(page.get_by_test_id("transcript")).to_contain_text(last, timeout=WAIT_MS)
    page.wait_for_function(
        "ids => JSON.stringify([...document.querySelectorAll('[data-testid=message]')]"
        ".map(row => row.dataset.entryId)) === JSON.stringify(ids)",
        arg=path_ids(api, session_id),
        timeout=WAIT_MS,
    )
    assert page.evaluate("window.isSame") is True


def test_a_stream_of_text_is_drawn_once_a_frame(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    api.post("/v1/sessions", json={"session_id": "fast"})
    visitor = visit(place_of("fast"))
    page = visitor.page
    expect(visitor.see("composer")).to_be_visible()
    page.evaluate(
        """() => {
          window.frames_ = 0;
          const count = () => { window.frames_ += 1; requestAnimationFrame(count); };
          requestAnimationFrame(count);
          window.drawings = 0;
          new MutationObserver(() => { window.drawings += 1; })
            .observe(document.querySelector("main"), {
              childList: true, subtree: true, characterData: true,
            });
        }"""
    )
    words = " ".join(f"w{n}" for n in range(6000))
    ask(api, "fast", Say(words, delta_chars=4, delay_s=0.0001))
    expect(visitor.see("transcript")).to_contain_text("w5999", timeout=WAIT_MS)
    until(api, "fast", "idle")
    drawings, frames = page.evaluate("[window.drawings, window.frames_]")
    assert 3 < drawings <= frames + 5


@pytest.mark.parametrize("how", ["502", "cut"])
@pytest.mark.parametrize("alone", [False, True], ids=["shared", "alone"])
def test_a_broken_way_is_caught_up_without_a_reload(
    how: str, alone: bool, browser: Browser, server: ServerProcess, api: httpx.Client, proxy: Proxy
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="before")
    visitor = Far(browser, server, proxy)
    if alone:
        visitor.context.add_init_script(ALONE)
    visitor.open(place_of("s"))
    page = visitor.page
    expect(visitor.see("transcript")).to_contain_text("before", timeout=WAIT_MS)
    expect(visitor.see("connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    page.evaluate("window.isSame = true")
    for n in range(3):
        proxy.fail("502" if how == "502" else "cut")
        expect(visitor.see("connection")).to_have_attribute("data-state", "lost", timeout=WAIT_MS)
        until(api, "s", "idle")
        ask(api, "s", text=f"missed {n}")
        until(api, "s", "idle")
        proxy.fail("pass")
        see_all(page, api, "s", f"missed {n}")
        expect(visitor.see("connection")).to_have_attribute("data-state", "live")
    assert visitor.complaints == []


def test_what_is_sent_while_the_way_is_broken_arrives_once(
    browser: Browser, server: ServerProcess, api: httpx.Client, proxy: Proxy
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    visitor = Far(browser, server, proxy)
    visitor.open(place_of("s"))
    page = visitor.page
    expect(visitor.see("connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    page.evaluate("window.isSame = true")
    proxy.fail("502")
    say(page, "through thick and thin")
    expect(visitor.see("retrying")).to_be_visible(timeout=WAIT_MS)
    proxy.fail("pass")
    see_all(page, api, "s", "through thick and thin")
    until(api, "s", "idle")
    assert len(path_ids(api, "s")) == 2
    expect(visitor.see("composer")).to_have_value("")


def test_a_session_that_was_made_anew_meanwhile_is_shown_anew(
    browser: Browser, server: ServerProcess, api: httpx.Client, proxy: Proxy
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="of the first life")
    until(api, "s", "idle")
    visitor = Far(browser, server, proxy)
    visitor.open(place_of("s"))
    page = visitor.page
    expect(visitor.see("transcript")).to_contain_text("first life", timeout=WAIT_MS)
    page.evaluate("window.isSame = true")
    proxy.fail("cut")
    api.delete("/v1/sessions/s").raise_for_status()
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="of the second life")
    until(api, "s", "idle")
    proxy.fail("pass")
    see_all(page, api, "s", "second life")
    expect(visitor.see("transcript")).not_to_contain_text("first life")


def test_a_session_that_is_deleted_says_so_and_shows_its_next_life(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="of the first life")
    visitor = visit(place_of("s"))
    expect(visitor.see("transcript")).to_contain_text("first life", timeout=WAIT_MS)
    until(api, "s", "idle")
    visitor.page.evaluate("window.isSame = true")
    api.delete("/v1/sessions/s").raise_for_status()
    expect(visitor.see("turn-state")).to_contain_text("deleted", timeout=WAIT_MS)
    expect(visitor.see("composer")).to_have_count(0)
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="of the second life")
    until(api, "s", "idle")
    see_all(visitor.page, api, "s", "second life")


def test_a_token_that_is_no_longer_good_is_renewed_without_a_reload(
    browser: Browser, server: ServerProcess
) -> None:
    visitor = Visitor(browser, server)
    visitor.open()
    page = visitor.page
    visitor.see("new-session").click()
    say(page, "said before")
    expect(visitor.see("transcript")).to_contain_text("said before", timeout=WAIT_MS)
    page.get_by_test_id("composer").fill("a draft")
    page.evaluate("window.isSame = true")
    server.stop()
    (server.folder / "data" / "token").unlink()
    server.start()
    dialog = visitor.see("unauthorised")
    expect(dialog).to_be_visible(timeout=WAIT_MS)
    visitor.shoot("live-signed-out")
    visitor.see("sign-in-token").fill("http://127.0.0.1/?token=wrong")
    visitor.see("sign-in").click()
    expect(dialog.get_by_role("alert")).to_be_visible(timeout=WAIT_MS)
    visitor.see("sign-in-token").fill(server.address)
    visitor.see("sign-in").click()
    expect(dialog).to_have_count(0, timeout=WAIT_MS)
    expect(visitor.see("connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    expect(visitor.see("composer")).to_have_value("a draft")
    visitor.see("send").click()
    expect(visitor.see("transcript").get_by_text("a draft").first).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("window.isSame") is True
    assert visitor.complaints == []


def test_who_may_only_read_is_offered_nothing_else(browser: Browser, server: ServerProcess) -> None:
    tokens = server.folder / "data" / "tokens.toml"
    writer, _ = add_token(tokens, "anna", "user")
    reader, _ = add_token(tokens, "anna", "viewer")
    with httpx.Client(
        base_url=server.base, headers={"Authorization": f"Bearer {writer}"}, timeout=30
    ) as anna:
        deadline = time.monotonic() + 30
        while anna.get("/v1/me").status_code != 200:
            assert time.monotonic() < deadline, "the token is never known"
            time.sleep(0.1)
        anna.post("/v1/sessions", json={"session_id": "hers"}).raise_for_status()
        ask(anna, "hers", text="for whoever reads")
        until(anna, "hers", "idle")
    visitor = Visitor(browser, server, signs_in=False)
    page = visitor.page
    page.goto(f"{server.base}/?token={reader}")
    visitor.see("session-item").locator("a").click(timeout=WAIT_MS)
    expect(visitor.see("reads-only")).to_contain_text("anna is signed in to read", timeout=WAIT_MS)
    visitor.see("message").first.hover()
    for what in ("composer", "new-session", "edit-message", "fork-here"):
        expect(visitor.see(what).locator("visible=true")).to_have_count(0)
    visitor.shoot("live-reads-only")
    visitor.see("session-menu").click()
    expect(page.get_by_role("menuitem")).to_have_text(["Export…", "Copy the id"])
    page.goto(f"{server.base}/?token={writer}")
    visitor.see("session-item").locator("a").click(timeout=WAIT_MS)
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("new-session")).to_be_visible()
    assert visitor.complaints == []


def test_a_connection_that_went_silent_is_given_up_after_sleep(
    browser: Browser, server: ServerProcess, api: httpx.Client, proxy: Proxy
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    ask(api, "s", text="before")
    visitor = Far(browser, server, proxy)
    visitor.context.add_init_script(ALONE)
    visitor.page.clock.install()
    visitor.open(place_of("s"))
    page = visitor.page
    expect(visitor.see("transcript")).to_contain_text("before", timeout=WAIT_MS)
    expect(visitor.see("connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    page.evaluate("window.isSame = true")
    until(api, "s", "idle")
    proxy.fail("silent")
    ask(api, "s", text="while it slept")
    until(api, "s", "idle")
    page.wait_for_timeout(300)
    expect(visitor.see("transcript")).not_to_contain_text("while it slept")
    proxy.mode = "pass"  # what was open stays silent: its bytes are gone
    page.clock.fast_forward(60_000)
    page.clock.resume()
    see_all(page, api, "s", "while it slept")


def test_thirteen_tabs_share_one_stream(visit: Callable[..., Visitor], api: httpx.Client) -> None:
    for n in range(13):
        api.post("/v1/sessions", json={"session_id": f"s{n}"})
    visitor = visit(place_of("s0"))
    tabs = [visitor.page, *(visitor.another(place_of(f"s{n}")) for n in range(1, 13))]
    for n, tab in enumerate(tabs):
        expect(tab.get_by_test_id("connection")).to_have_attribute(
            "data-state", "live", timeout=WAIT_MS
        )
        ask(api, f"s{n}", text=f"for tab {n}")
    for n, tab in enumerate(tabs):
        expect(tab.get_by_test_id("transcript")).to_contain_text(f"for tab {n}", timeout=WAIT_MS)
    expect_viewers(api, 1)
    for tab in tabs[1:]:
        tab.close()
    ask(api, "s0", text="still here")
    expect(visitor.see("transcript")).to_contain_text("still here", timeout=WAIT_MS)
    visitor.page.goto("about:blank")
    expect_viewers(api, 0)


def test_without_a_shared_worker_hidden_tabs_make_room(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    for n in range(13):
        api.post("/v1/sessions", json={"session_id": f"s{n}"})
    visitor = visit()
    visitor.context.add_init_script(ALONE + ";" + HIDEABLE)
    visitor.page.goto(f"{visitor.server.base}/{place_of('s0')}")
    visitor.page.reload()
    tabs = [visitor.page]
    for n in range(1, 13):
        tabs[-1].evaluate(TURN_AWAY, True)
        tabs.append(visitor.another(place_of(f"s{n}")))
        expect(tabs[-1].get_by_test_id("connection")).to_have_attribute(
            "data-state", "live", timeout=WAIT_MS
        )
    expect_viewers(api, 1)
    ask(api, "s0", text="while hidden")
    until(api, "s0", "idle")
    tabs[-1].evaluate(TURN_AWAY, True)
    tabs[0].evaluate(TURN_AWAY, False)
    expect(tabs[0].get_by_test_id("transcript")).to_contain_text("while hidden", timeout=WAIT_MS)
    assert rows(tabs[0]) == path_ids(api, "s0")


def expect_viewers(api: httpx.Client, wanted: int) -> None:
    """So many streams are open at the server, soon."""
    deadline = time.monotonic() + 10
    while True:
        found = re.search(r"^perdure_viewers (\d+)", api.get("/metrics").text, re.MULTILINE)
        assert found is not None
        if int(found[1]) == wanted:
            return
        assert time.monotonic() < deadline, f"{found[1]} streams are open, not {wanted}"
        time.sleep(0.05)


def test_who_joins_in_mid_message_reads_all_of_it(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    one = visit(place_of("s"))
    said = " ".join(f"w{n}" for n in range(300))
    call = Call("watch", {"n": 1}, output=["tick\n", "tock\n"], hangs=True)
    ask(api, "s", Say(said, delta_chars=3, delay_s=0.004), Say(calls=[call]), Hang())
    expect(one.see("transcript")).to_contain_text("w40", timeout=WAIT_MS)
    two = one.another(place_of("s"))
    three = visit(place_of("s"))
    for page in (one.page, two, three.page):
        live = page.get_by_test_id("transcript")
        expect(live).to_contain_text(said, timeout=WAIT_MS)
        expect(page.get_by_test_id("tool-output")).to_contain_text("tick\ntock", timeout=WAIT_MS)
    visit_ids = [rows(page) for page in (one.page, two, three.page)]
    assert visit_ids[0] == visit_ids[1] == visit_ids[2] == path_ids(api, "s")


def test_a_turn_that_died_without_an_answer_is_marked_where_it_was(
    visit: Callable[..., Visitor], api: httpx.Client, server: ServerProcess
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"}).raise_for_status()
    visitor = visit(place_of("s"))
    ask(api, "s", Say("half an answer that nobody kept", delay_s=0.05, cut="hang"))
    expect(visitor.see("transcript")).to_contain_text("half an answer", timeout=WAIT_MS)
    server.kill()
    server.start()
    ask(api, "s", text="and then")
    until(api, "s", "idle")
    expect(visitor.see("message").last).to_contain_text("and then", timeout=WAIT_MS)
    # What was provisional is gone; that it is, and why, is said.
    told = visitor.see("aftermath")
    expect(told).to_have_count(1, timeout=WAIT_MS)
    expect(told).to_contain_text("The turn was interrupted")
    visitor.shoot("live-interrupted")
    visitor.page.reload()
    expect(told).to_contain_text("The turn was interrupted", timeout=WAIT_MS)

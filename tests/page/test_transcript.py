"""The transcript: a window of a long conversation, what its rows show, the journal behind it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.entry import File, Message, Reasoning, Text, ToolCall, ToolResult
from tests.page.conftest import SCRIPTED
from tests.page.visitor import WAIT_MS, Visitor, place_of, rows
from tests.page.world import chain, long_talk, store_sessions
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

MOST_ROWS = 350
TOP_OF_ROWS = """() => {
  const view = document.querySelector(".scroller").getBoundingClientRect();
  const found = [...document.querySelectorAll("[data-row]")]
    .find(row => row.getBoundingClientRect().bottom > view.top + 40);
  return [found.dataset.row, found.getBoundingClientRect().top];
}"""
TOP_OF = (
    """id => document.querySelector(`[data-row="${id}"]`)?.getBoundingClientRect().top ?? null"""
)


@pytest.fixture
def server(tmp_path: Path) -> ServerProcess:
    return ServerProcess(tmp_path, loop=SCRIPTED)


def scroll_to(page: Page, top: float) -> None:
    page.locator(".scroller").evaluate("(view, top) => { view.scrollTop = top }", top)


def test_a_long_conversation_is_a_window_that_scrolls_without_a_jump(
    browser: Browser, server: ServerProcess
) -> None:
    store_sessions(server.folder, {"long": long_talk(400)})
    with server:
        visitor = Visitor(browser, server)
        visitor.open(place_of("long"))
        page = visitor.page
        expect(page.get_by_text("answer 399")).to_be_in_viewport(timeout=WAIT_MS)
        held = page.locator('[data-row="t398"]')
        held.get_by_test_id("reasoning").locator("summary").click()
        held.evaluate("row => { row.isHeld = true }")
        seen = set(rows(page))
        for turn in range(25):
            first = page.get_by_test_id("transcript").get_attribute("data-first")
            scroll_to(page, 500)
            before, top = page.evaluate(TOP_OF_ROWS)
            page.wait_for_function(
                "first => document.querySelector('.transcript').dataset.first !== first",
                arg=first,
            )
            page.wait_for_timeout(100)
            assert abs(page.evaluate(TOP_OF, before) - top) < 2
            if turn == 0:  # What stays in the page is not drawn anew: it is as it was left.
                assert held.evaluate("row => row.isHeld === true")
                expect(held.get_by_test_id("reasoning")).to_have_attribute("open", "")
            shown = rows(page)
            assert len(shown) == len(set(shown)) < MOST_ROWS
            seen |= set(shown)
            if page.get_by_test_id("older").count() == 0:
                break
        assert page.get_by_test_id("older").count() == 0
        expect(page.locator('[data-entry-id="q0"]')).to_be_attached()
        assert {f"q{n}" for n in range(400)} <= seen

        # And forth again: to the newest without a hole.
        again = set(rows(page))
        for _ in range(40):
            if page.get_by_test_id("newer").count() == 0:
                break
            last = rows(page)[-1]
            page.locator(".scroller").evaluate("view => { view.scrollTop = view.scrollHeight }")
            page.wait_for_function(
                "last => [...document.querySelectorAll('[data-testid=message]')].at(-1)"
                ".dataset.entryId !== last",
                arg=last,
            )
            again |= set(rows(page))
        assert {f"a{n}" for n in range(400)} <= again
        assert len(rows(page)) < MOST_ROWS
        scroll_to(page, 0)
        page.wait_for_timeout(300)
        page.get_by_test_id("to-end").click()
        expect(page.get_by_text("answer 399")).to_be_in_viewport(timeout=WAIT_MS)
        assert visitor.complaints == []


def test_a_link_to_an_entry_shows_it_with_what_is_around_it(
    browser: Browser, server: ServerProcess
) -> None:
    store_sessions(server.folder, {"long": long_talk(300)})
    with server:
        visitor = Visitor(browser, server)
        visitor.open(place_of("long", "entry", "q120"))
        page = visitor.page
        row = page.locator('.row.target [data-entry-id="q120"]')
        expect(row).to_be_in_viewport(timeout=WAIT_MS)
        expect(page.locator('[data-entry-id="q119"]')).to_be_attached()
        expect(page.locator('[data-entry-id="a121"]')).to_be_attached()
        assert page.locator('[data-entry-id="q299"]').count() == 0
        visitor.shoot("transcript-deep-link")
        page.evaluate("place => { location.hash = place }", place_of("long", "entry", "r123"))
        expect(page.locator('.row [data-entry-id="t123"]')).to_be_in_viewport(timeout=WAIT_MS)
        page.get_by_test_id("to-end").click()
        expect(page.get_by_text("answer 299")).to_be_in_viewport(timeout=WAIT_MS)
        assert visitor.complaints == []


def test_a_big_result_is_read_piece_by_piece(browser: Browser, server: ServerProcess) -> None:
    lines = "".join(f"line {n} ✓ of the output\n" for n in range(600_000))[: 16 << 20]
    call = ToolCall("c", "build", {"target": "all"})
    store_sessions(
        server.folder,
        {
            "big": chain(
                [
                    Message("user", (Text("build it"),)),
                    Message("assistant", (call,)),
                    Message("tool", (ToolResult("c", (Text(lines),), name="build"),)),
                    Message("assistant", (Text("built"),)),
                ]
            )
        },
    )
    with server:
        visitor = Visitor(browser, server)
        page = visitor.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.headers.get("range", "")))
        fetched: list[int] = []
        page.on(
            "response",
            lambda answer: fetched.append(int(answer.headers.get("content-length", "0"))),
        )
        visitor.open(place_of("big"))
        card = page.get_by_test_id("tool-call")
        expect(card).to_have_attribute("data-state", "done", timeout=WAIT_MS)
        assert not any(asked)
        card.locator("summary").first.click()
        elided = page.get_by_test_id("elided")
        expect(elided).to_contain_text("line 0 ✓", timeout=WAIT_MS)
        joined = elided.inner_text()
        for n in range(1, 4):
            page.get_by_test_id("elided-more").click()
            expect(elided).to_have_attribute("data-piece", str(n), timeout=WAIT_MS)
            joined += elided.inner_text()
        assert joined == lines[: len(joined)]
        assert "\ufffd" not in joined
        page.get_by_test_id("elided-end").click()
        expect(elided).to_contain_text(lines[-40:].strip(), timeout=WAIT_MS)
        assert page.evaluate("document.body.textContent.length") < 400_000
        assert max(fetched) < 400_000
        visitor.shoot("transcript-big-result")
        assert visitor.complaints == []


PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"
    b"\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99"
    b"=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
)


def test_each_kind_of_content_is_shown_as_what_it_is(
    browser: Browser, server: ServerProcess
) -> None:
    store_sessions(
        server.folder,
        {
            "kinds": chain(
                [
                    Message("system", (Text("be kind"),)),
                    Message("user", (Text("injected: the time is noon"),), meta=True),
                    Message("user", (Text("look"), File("image/png", data=PIXEL, name="dot.png"))),
                    Message(
                        "assistant",
                        (
                            Reasoning("secret thoughts"),
                            Text("```python\nprint('hi')\n```\n\nand a *word*"),
                            ToolCall("c1", "read", {"path": "a.py", "n": 1}),
                            ToolCall("c2", "write", {"path": "b.py"}),
                        ),
                    ),
                    Message("tool", (ToolResult("c1", (Text("raw\toutput"),), name="read"),)),
                    Message("tool", (ToolResult("c2", (), name="write", interrupted=True),)),
                    Message("assistant", (Text("cut he"),), end="interrupted"),
                    Message("user", (Text("again"),)),
                    Message("assistant", (Text("half a"),), end="stopped"),
                ]
            )
        },
    )
    with server:
        visitor = Visitor(browser, server, timezone_id="Asia/Tokyo", locale="en-GB")
        visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
        visitor.open(place_of("kinds"))
        page = visitor.page
        transcript = page.get_by_test_id("transcript")
        expect(transcript.locator("img[alt='dot.png']")).to_be_visible(timeout=WAIT_MS)
        assert page.evaluate("document.querySelector('img[alt]').naturalWidth") == 1
        expect(transcript).not_to_contain_text("injected")
        expect(page.get_by_text("secret thoughts")).to_be_hidden()
        page.get_by_test_id("reasoning").locator("summary").click()
        expect(page.get_by_text("secret thoughts")).to_be_visible()
        expect(transcript).to_contain_text("Interrupted here")
        expect(transcript).to_contain_text("Stopped here")
        expect(page.locator(".hljs-string").first).to_have_text("'hi'")

        page.locator(".code").first.hover()
        page.get_by_test_id("copy-code").first.click()
        expect(page.get_by_test_id("copy-code").first).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == "print('hi')"

        read, write = page.get_by_test_id("tool-call").all()
        expect(write).to_have_attribute("data-state", "interrupted")
        read.locator("summary").first.click()
        expect(read.get_by_test_id("tool-input")).to_contain_text('"path": "a.py"')
        assert read.get_by_test_id("tool-output").locator("pre").inner_text() == "raw\toutput"

        # The reader's own zone, and all of the time on being pointed at.
        title = page.locator(".message-actions time").first.get_attribute("title") or ""
        assert re.search(r"GMT\+9|JST|Japan", title)
        visitor.shoot("transcript-kinds")

        page.get_by_test_id("view-everything").click()
        entries = page.get_by_test_id("journal-entry")
        expect(entries).to_have_count(9, timeout=WAIT_MS)
        assert [each.get_attribute("data-seq") for each in entries.all()] == [
            str(n) for n in range(1, 10)
        ]
        expect(page.get_by_test_id("everything")).to_contain_text("injected: the time is noon")
        page.get_by_test_id("kind-message").click()
        expect(entries).to_have_count(2)
        entries.nth(1).locator("summary").click()
        expect(entries.nth(1)).to_contain_text('"meta": true')
        visitor.shoot("everything-context")
        assert visitor.complaints == []


def test_the_journal_is_paged_and_grows_while_it_is_looked_at(
    visit: Callable[..., Visitor], server: ServerProcess, tmp_path: Path
) -> None:
    store_sessions(tmp_path, {"long": long_talk(300)})
    with server, httpx.Client(base_url=server.base, headers=server.headers, timeout=30) as api:
        visitor = visit(place_of("long", "everything"))
        page = visitor.page
        last = page.get_by_test_id("journal-entry").last
        expect(last).to_have_attribute("data-seq", "720", timeout=WAIT_MS)
        api.post("/v1/sessions/long/messages", json={"text": "one more"}).raise_for_status()
        expect(last).to_have_attribute("data-type", "turn_ended", timeout=WAIT_MS)
        expect(last).to_be_in_viewport()
        for _ in range(12):
            scroll_to(page, 0)
            page.wait_for_timeout(150)
        expect(page.get_by_test_id("journal-entry").first).to_have_attribute("data-seq", "1")
        assert page.get_by_test_id("journal-entry").count() <= 500
        page.evaluate("place => { location.hash = place }", place_of("long", "everything", "333"))
        target = page.locator(".entry.target")
        expect(target).to_be_in_viewport(timeout=WAIT_MS)
        expect(target).to_contain_text('"seq": 333')

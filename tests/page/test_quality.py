"""For everybody: axe, themes, widths, less motion, either direction; and small, fast and flat."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.entry import Message, Text
from perdure.testing import Say
from tests.page.visitor import WAIT_MS, Visitor, place_of, say
from tests.page.world import ask, chain, store_sessions, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

ROOT = Path(__file__).parents[2]
AXE = ROOT / "page" / "node_modules" / "axe-core" / "axe.min.js"
STATIC = ROOT / "src" / "perdure" / "server" / "static"
DEMO = "tests.page.demo_loop:demo"

WIDE = {"width": 1720, "height": 1000}
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def demo(tmp_path: Path) -> ServerProcess:
    """A server whose sessions look as people's do."""
    store_sessions(
        tmp_path,
        {
            f"{n:032x}": chain(
                [Message("user", (Text(words),)), Message("assistant", (Text("Done."),))]
            )
            for n, words in enumerate(
                (
                    "Write the release notes for 0.1.0",
                    "مرحبا، كيف يمكنني إعادة تشغيل الخادم؟",
                    "Summarise the incident of last Tuesday, and list what we still do not know",
                    "Translate docs/format.md",
                )
            )
        },
    )
    return ServerProcess(tmp_path, loop=DEMO)


def live(api: httpx.Client) -> str:
    """Sessions in the middle of things; the id of the longest one."""
    session_id = str(api.post("/v1/sessions", json={}).json()["session_id"])
    ask(api, session_id, text="Two writers hang when the disk is slow. Why?")
    until(api, session_id, "idle")
    first = ask(api, session_id, text="And after a power loss?")
    until(api, session_id, "idle")
    entries = api.get(f"/v1/sessions/{session_id}/transcript").json()["entries"]
    (parent,) = (each["parent_id"] for each in entries if each["id"] == first)
    api.post(f"/v1/sessions/{session_id}/branch", json={"entry_id": parent}).raise_for_status()
    ask(api, session_id, text="What does a power loss leave behind?")
    until(api, session_id, "idle")
    for name, text in (
        ("release-check", "Run the tests and publish 0.1.0"),
        ("nightly", "nightly"),
    ):
        api.post("/v1/sessions", json={"session_id": name})
        ask(api, name, text=text)
    ask(api, "release-check", text="then tell everybody")
    until(api, "nightly", "failed")
    return session_id


def check_with_axe(page: Page, name: str) -> None:
    """axe finds nothing: WCAG's rules and those of good practice."""
    violations = page.evaluate(
        """async () => {
          const { violations } = await axe.run(document, { resultTypes: ["violations"] });
          const say = node => `${node.target.join(" ")} ${node.failureSummary}`;
          return violations.map(v => `${v.id}: ${v.help}: ${v.nodes.map(say).join(" | ")}`);
        }"""
    )
    assert violations == [], f"{name}: {violations}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_axe_finds_nothing(browser: Browser, demo: ServerProcess, scheme: str, width: str) -> None:
    with demo, httpx.Client(base_url=demo.base, headers=demo.headers, timeout=30) as api:
        session_id = live(api)
        more = {"has_touch": True, "is_mobile": True} if width == "phone" else {}
        visitor = Visitor(
            browser,
            demo,
            color_scheme=scheme,
            viewport=PHONE if width == "phone" else WIDE,
            reduced_motion="reduce",
            **more,
        )
        visitor.context.add_init_script(path=AXE)
        visitor.open()
        page = visitor.page

        def stands(name: str) -> None:
            page.wait_for_timeout(150)
            check_with_axe(page, name)
            visitor.shoot(f"quality-{width}-{scheme}-{name}")
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], f"{name} is wider than the screen"

        expect(visitor.see("session-item").first).to_be_visible(timeout=WAIT_MS)
        stands("home")
        page.goto(f"{demo.base}/{place_of(session_id)}")
        expect(visitor.see("message").last).to_contain_text("or it is", timeout=WAIT_MS)
        page.locator(".scroller").evaluate("view => { view.scrollTop = 0 }")
        visitor.see("tool-call").first.locator("summary").first.click()
        stands("conversation")
        visitor.see("branch-before").click()
        expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
        stands("reading")
        page.goto(f"{demo.base}/{place_of(session_id, 'everything')}")
        expect(visitor.see("journal-entry").last).to_be_visible(timeout=WAIT_MS)
        visitor.see("journal-entry").last.locator("summary").click()
        stands("everything")
        page.goto(f"{demo.base}/{place_of(session_id, 'map')}")
        expect(visitor.see("map-stop").last).to_be_visible(timeout=WAIT_MS)
        stands("map")
        page.goto(f"{demo.base}/{place_of('release-check')}")
        expect(visitor.see("queued")).to_have_count(1, timeout=WAIT_MS)
        visitor.see("composer").fill("one more thing")
        stands("running")
        page.goto(f"{demo.base}/{place_of('nightly')}")
        expect(visitor.see("resend")).to_be_visible(timeout=WAIT_MS)
        visitor.see("session-menu").click()
        stands("menu")
        visitor.see("delete").click()
        expect(visitor.see("losses")).to_contain_text("journal", timeout=WAIT_MS)
        stands("delete")
        assert visitor.complaints == []


def test_live_regions_do_not_shout(visit: Callable[..., Visitor], api: httpx.Client) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    visitor = visit(place_of("s"))
    page = visitor.page
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    page.evaluate(
        """() => {
          window.said = [];
          const regions = "[aria-live], [role=status], [role=log], [role=alert]";
          for (const region of document.querySelectorAll(regions))
            new MutationObserver(() => region.textContent && window.said.push(region.textContent))
              .observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    ask(api, "s", Say("word " * 400, delta_chars=5, delay_s=0.002))
    until(api, "s", "idle")
    expect(visitor.see("announcer")).to_have_text("The answer is there", timeout=WAIT_MS)
    assert page.evaluate("window.said") == ["Working", "The answer is there"]


def test_text_from_right_to_left_stands_at_the_right(
    browser: Browser, server: ServerProcess
) -> None:
    server.stop()
    arabic = "مرحبا بالعالم، هذه رسالة طويلة بما يكفي لتملأ أكثر من سطر واحد في الصفحة. " * 4
    entries = [
        Message("user", (Text("שלום עולם"),)),
        Message("assistant", (Text(f"# عنوان\n\n{arabic}\n\n- واحد\n- اثنان"),)),
    ]
    store_sessions(
        server.folder, {"rtl": chain(entries), "latin": chain([Message("user", (Text("hi"),))])}
    )
    server.start()
    visitor = Visitor(browser, server)
    visitor.open(place_of("rtl"))
    page = visitor.page
    expect(page.locator(".markdown h2")).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("getComputedStyle(document.querySelector('.markdown')).direction") == "rtl"
    assert page.evaluate("getComputedStyle(document.querySelector('.plain')).direction") == "rtl"
    visitor.shoot("quality-rtl-text")
    # And all of the page, in a browser whose reader turns it.
    page.evaluate("document.documentElement.dir = 'rtl'")
    side = page.locator(".sidebar").bounding_box()
    assert side is not None
    assert side["x"] > 600
    visitor.shoot("quality-rtl-page")
    assert visitor.complaints == []


def test_the_page_is_small() -> None:
    def packed(pattern: str) -> int:
        return sum(len(gzip.compress(each.read_bytes(), 9)) for each in STATIC.rglob(pattern))

    assert packed("*.js") + packed("*.css") + packed("*.html") < 120 * 1024


def test_the_first_paint_comes_within_a_second(browser: Browser, server: ServerProcess) -> None:
    visitor = Visitor(browser, server)
    visitor.open()
    paints = []
    for _ in range(3):
        visitor.page.reload()
        expect(visitor.see("new-session")).to_be_visible()
        paints.append(
            visitor.page.evaluate(
                "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            )
        )
    assert min(paints) < 1000


def heap(page: Page) -> int:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    usage: int = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return usage


def test_memory_is_flat_while_much_streams(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    """An hour of a talkative session, in fast motion: what is scrolled out of reach is let go."""
    api.post("/v1/sessions", json={"session_id": "s"})
    visitor = visit(place_of("s"))
    page = visitor.page
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)

    def stream(turns: int) -> None:
        for n in range(turns):
            words = f"turn {n} " + "and so on " * 100
            ask(api, "s", *[Say(words, delta_chars=12)] * 8)
            until(api, "s", "idle")
        expect(visitor.see("transcript")).to_contain_text(f"turn {turns - 1} ", timeout=WAIT_MS)

    stream(40)  # until the window is full
    full, nodes = heap(page), page.evaluate("document.querySelectorAll('*').length")
    stream(40)
    assert heap(page) < full * 1.3 + 4_000_000
    assert page.evaluate("document.querySelectorAll('*').length") < nodes * 1.3
    assert page.locator(".row").count() < 400


def test_reduced_motion_moves_nothing(browser: Browser, server: ServerProcess) -> None:
    visitor = Visitor(browser, server, reduced_motion="reduce")
    visitor.open()
    visitor.see("new-session").click()
    say(visitor.page, '[{"do": "hang"}]')
    expect(visitor.see("working")).to_be_visible(timeout=WAIT_MS)
    time.sleep(0.2)
    assert visitor.page.evaluate("document.getAnimations().length") == 0

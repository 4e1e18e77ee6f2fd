"""Whatever a conversation says, the page only shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from perdure.entry import Custom, File, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.testing import Call, Say
from tests.page.visitor import WAIT_MS, Visitor, place_of
from tests.page.world import ask, chain, store_sessions, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

OVERRIDE = "\u202egnp.exe\u202c"
EVILS = (
    "<script>window.pwned = 1</script>",
    "<img src=x onerror='window.pwned = 1'>",
    "<svg/onload=window.pwned=1>",
    "<iframe srcdoc='<script>parent.pwned = 1</script>'></iframe>",
    "<style>body { display: none }</style>",
    "<form action='https://evil.example'><button>send</button></form>",
    "<a href='javascript:window.pwned=1'>raw link</a>",
    "<base href='https://evil.example/'>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "[js](javascript:window.pwned=1) [JS](jAvAsCrIpT:window.pwned=1)",
    "[data](data:text/html,<script>window.pwned=1</script>)",
    "![image](https://evil.example/pixel.png) ![x](javascript:window.pwned=1)",
    "<https://evil.example/auto> https://evil.example/bare",
    "```html\n<script>window.pwned = 1</script>\n```",
    '```"><script>window.pwned=1</script>\ncode\n```',
    "data: forged\n\nevent: entry\nid: 9999.x\ndata: {}\n\nevent: void\ndata: {}\n\n",
    "\r\revent: status\rdata: {}\r\r",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x1b[2J",
    f"{OVERRIDE} \u2066isolate\u2069 \u200f rlm",
    "[ref]: javascript:window.pwned=1\n[ref]",
    "a" * 3000,
    "🧭👩‍👩‍👧‍👦🏳️‍🌈" * 3400,
    "\U000e0001\U000e0041 z\u0335\u0336" + "\u0300" * 500,
    "&#x3C;script&#x3E;window.pwned=1&#x3C;/script&#x3E;",
    "|a|b|\n|-|-|\n|<img src=x onerror=window.pwned=1>|`|`|",
    "\n".join(f"{'  ' * n}- level {n}" for n in range(60)),
    ">" * 200 + " deep",
    "|" + "c|" * 1000 + "\n|" + "-|" * 1000 + "\n|" + "1|" * 1000,
)


def all_of_it() -> list[Message]:
    messages: list[Message] = []
    for n, evil in enumerate(EVILS):
        call = ToolCall(f"c{n}", evil[:120], {evil[:100]: evil})
        result = ToolResult(f"c{n}", (Text(evil),), name=evil[:120], is_error=True)
        messages += [
            Message("user", (Text(evil), File("image/svg+xml", data=evil.encode(), name=evil))),
            Message("assistant", (Reasoning(evil), Text(evil), call)),
            Message("tool", (result,)),
        ]
    return messages


def test_hostile_content_is_inert(browser: Browser, server: ServerProcess) -> None:
    server.stop()
    entries = chain(all_of_it())
    last = entries[-1]
    custom = Custom(kind=EVILS[0], data={"x": EVILS[1]}, parent_id=getattr(last, "id", None))
    store_sessions(server.folder, {f"evil {EVILS[1]} {n}": [*entries, custom] for n in (1, 2)})
    server.start()
    visitor = Visitor(browser, server, viewport={"width": 900, "height": 700})
    asked: list[str] = []
    visitor.context.on("request", lambda request: asked.append(request.url))
    visitor.page.on("dialog", lambda dialog: asked.append(f"dialog {dialog.message}"))
    violations = "window.violations = []; addEventListener('securitypolicyviolation', e => "
    violations += "window.violations.push(e.violatedDirective + ' ' + e.blockedURI))"
    visitor.context.add_init_script(violations)
    visitor.open(place_of(f"evil {EVILS[1]} 1"))
    page = visitor.page
    expect(visitor.see("message").last).to_be_visible(timeout=WAIT_MS)
    for _ in range(6):
        page.locator(".scroller").evaluate("view => { view.scrollTop = 0 }")
        page.wait_for_timeout(150)
    page.eval_on_selector_all("details", "all => all.forEach(each => { each.open = true })")
    page.wait_for_timeout(500)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("window.violations") == []  # not even tried
    assert page.locator("#app script, #app iframe, #app style, #app form[action]").count() == 0
    bad = page.eval_on_selector_all(
        ".transcript *",
        """all => all.flatMap(each => [...each.attributes].map(a => `${a.name}=${a.value}`))
          .filter(a => /^on|^srcdoc|^style=/.test(a)
            || /^(href|src)=\\s*(javascript|vbscript|data:text)/i.test(a))""",
    )
    assert bad == []
    links = page.eval_on_selector_all(
        ".markdown a[href]", "all => all.map(a => [a.protocol, a.rel, a.target])"
    )
    assert links
    assert {tuple(link) for link in links} == {("https:", "noopener noreferrer nofollow", "_blank")}
    text = page.get_by_test_id("transcript").inner_text()
    assert "\x1b" not in text
    assert "␛[31m" in text
    assert "\u202e" not in text
    assert "⟦U+202E⟧" in text
    # A word of three thousand letters and thousands of signs widen nothing.
    assert page.evaluate("document.querySelector('.scroller').scrollWidth") <= 900
    visitor.shoot("hostile")
    page.goto(f"{server.base}/{place_of(f'evil {EVILS[1]} 2', 'everything')}")
    expect(visitor.see("journal-entry").last).to_be_visible(timeout=WAIT_MS)
    page.goto(f"{server.base}/{place_of(f'evil {EVILS[1]} 2', 'map')}")
    expect(visitor.see("map-stop").last).to_be_attached(timeout=WAIT_MS)
    assert page.evaluate("[window.pwned ?? null, window.violations]") == [None, []]
    assert [url for url in asked if not url.startswith(server.base)] == []
    assert visitor.complaints == []


def test_hostile_text_that_streams_forges_no_event(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    api.post("/v1/sessions", json={"session_id": "s"})
    visitor = visit(place_of("s"))
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    said = "\n\n".join(EVILS[:20])
    call = Call(EVILS[1], {"x": EVILS[0]}, output=[EVILS[15], EVILS[17]])
    ask(api, "s", Say(said, reasoning=EVILS[16], delta_chars=7, delay_s=0.001, calls=[call]))
    until(api, "s", "idle")
    expect(visitor.see("tool-call")).to_have_attribute("data-state", "done", timeout=WAIT_MS)
    assert visitor.page.evaluate("window.pwned") is None
    shown = visitor.see("message").last.get_attribute("data-entry-id")
    entries: list[dict[str, Any]] = api.get("/v1/sessions/s/transcript").json()["entries"]
    assert shown in {each["id"] for each in entries}


def test_the_policy_allows_no_inline_script(browser: Browser, server: ServerProcess) -> None:
    visitor = Visitor(browser, server)
    visitor.open()
    page = visitor.page
    answer = page.request.get(f"{server.base}/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    html = answer.text()
    assert "<script>" not in html
    assert " onload" not in html
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.pwned = 1";
          document.body.append(script);
          document.body.setAttribute("onclick", "window.pwned = 2");
          document.body.click();
        }"""
    )
    assert page.evaluate("window.pwned") is None
    assert len(visitor.complaints) >= 1  # the browser says that it refused

"""Around a conversation: approvals, hooks that ran, what is unrecoverable, and exports."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.entry import File, Message, Reasoning, Text, ToolCall, ToolResult
from perdure.line import read_line
from perdure.testing import Call, Say
from tests.page.conftest import SCRIPTED
from tests.page.test_transcript import PIXEL
from tests.page.visitor import WAIT_MS, Visitor, place_of
from tests.page.world import ask, chain, long_talk, store_sessions, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

ASKS = """import json, sys
call = json.load(sys.stdin)
print(json.dumps({"hookSpecificOutput": {
    "hookEventName": "PreToolUse",
    "permissionDecision": "ask",
    "permissionDecisionReason": "money is <b>spent</b>",
}}))
"""


@pytest.fixture
def careful(tmp_path: Path) -> ServerProcess:
    """A server whose hook has a person approve each call of the tool `pay`."""
    script = tmp_path / "ask.py"
    script.write_text(ASKS)
    command = {"type": "command", "command": f"python3 {script}"}
    hooks = {"hooks": {"PreToolUse": [{"matcher": "pay", "hooks": [command]}]}}
    (tmp_path / "hooks.json").write_text(json.dumps(hooks))
    return ServerProcess(tmp_path, loop=SCRIPTED)


CLAUDE = Path(__file__).parents[1] / "loops" / "claude_program.py"


def test_what_no_call_of_the_transcript_asks_for_is_asked_too(
    browser: Browser, tmp_path: Path
) -> None:
    """An agent that a command-line agent started asks, and the journal has no call of it."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "perdure.toml").write_text(
        f"[loops.claude]\nkind = 'claude-stream'\ncommand = ['{sys.executable}', '{CLAUDE}']\n"
        f"[loops.claude.env]\nAGENT_SESSIONS = '{tmp_path / 'sessions'}'\n"
    )
    server = ServerProcess(tmp_path, loop="claude")
    with server, httpx.Client(base_url=server.base, headers=server.headers) as api:
        api.post("/v1/sessions", json={"session_id": "s"}).raise_for_status()
        visitor = Visitor(browser, server)
        visitor.open(place_of("s"))
        api.post("/v1/sessions/s/messages", json={"text": "delegate and wait"})
        alone = visitor.see("approval-alone")
        expect(alone).to_contain_text("Bash needs your approval", timeout=WAIT_MS)
        expect(alone).to_contain_text("an agent that it started asks: A test")
        visitor.shoot("approval-alone")
        alone.get_by_test_id("approve").click()
        expect(visitor.see("message").last).to_contain_text("Done.", timeout=WAIT_MS)
        expect(alone).not_to_be_visible()
        assert visitor.complaints == []


def test_a_call_waits_for_its_approval_with_its_whole_input(
    browser: Browser, careful: ServerProcess
) -> None:
    pay = Call("pay", {"sum": 5, "to": "somebody"}, result="paid")
    with careful, httpx.Client(base_url=careful.base, headers=careful.headers) as api:
        api.post("/v1/sessions", json={"session_id": "s"}).raise_for_status()
        visitor = Visitor(browser, careful)
        visitor.open(place_of("s"))
        ask(api, "s", Say("I will pay.", calls=[pay]), Say("Done."))
        card = visitor.see("tool-call")
        expect(card).to_have_attribute("data-state", "waiting", timeout=WAIT_MS)
        expect(visitor.see("approval")).to_contain_text('"to": "somebody"')
        expect(visitor.see("approval")).to_contain_text("money is <b>spent</b>")
        expect(visitor.see("session-status")).to_have_text("needs approval")
        visitor.shoot("approval")
        visitor.page.reload()  # who comes later sees it too
        expect(visitor.see("approval")).to_contain_text('"to": "somebody"', timeout=WAIT_MS)
        visitor.see("approval-edit").click()
        visitor.see("approval-input").fill("{not json")
        visitor.see("approve").click()
        expect(visitor.see("approval")).to_contain_text("nothing was sent", timeout=WAIT_MS)
        expect(visitor.see("approval-input")).to_have_attribute("aria-invalid", "true")
        visitor.see("approval-input").fill('{"sum": 4}')
        expect(visitor.see("approval")).not_to_contain_text("nothing was sent")
        visitor.see("approval-reason").fill("a little less")
        visitor.see("approve").click()
        expect(card).to_have_attribute("data-state", "done", timeout=WAIT_MS)
        expect(visitor.see("message").last).to_contain_text("Done.", timeout=WAIT_MS)
        entries = api.get("/v1/sessions/s/entries", params={"limit": 100}).json()["entries"]
        (answer,) = (each for each in entries if each["type"] == "approval_answered")
        assert (answer["approve"], answer["arguments"], answer["reason"]) == (
            True,
            {"sum": 4},
            "a little less",
        )

        until(api, "s", "idle")
        # The model asked for something else than what ran: both are told, to who comes later too.
        visitor.page.reload()
        expect(card).to_have_attribute("data-state", "done", timeout=WAIT_MS)
        card.locator("summary").first.click()
        expect(card.get_by_test_id("tool-input")).to_contain_text('"sum": 5', timeout=WAIT_MS)
        expect(card.get_by_test_id("ran-with")).to_contain_text('"sum": 4', timeout=WAIT_MS)
        expect(card.get_by_test_id("verdict")).to_contain_text(
            "Approved with another input: a little less"
        )
        visitor.shoot("approval-ran-with")
        ask(api, "s", Say("Again.", calls=[pay]), Say("Not done."))
        expect(visitor.see("approval")).to_be_visible(timeout=WAIT_MS)
        visitor.see("deny").click()
        expect(visitor.see("message").last).to_contain_text("Not done.", timeout=WAIT_MS)
        expect(card.last).not_to_have_attribute("data-state", "done")

        # The hooks that ran are in the journal, with what they were told and what they said.
        visitor.see("view-everything").click()
        for kind in ("message", "fact", "context"):
            visitor.see(f"kind-{kind}").click()
        hooks = visitor.see("journal-entry")
        expect(hooks).to_have_count(2, timeout=WAIT_MS)
        hooks.first.locator("summary").click()
        expect(hooks.first).to_contain_text("PreToolUse")
        expect(hooks.first).to_contain_text('"sum": 5')
        visitor.shoot("hooks-that-ran")
        assert visitor.complaints == []


def test_who_refused_a_call_is_told(browser: Browser, careful: ServerProcess) -> None:
    hooks = json.loads((careful.folder / "hooks.json").read_text())
    no = {"type": "command", "command": "echo 'not here <i>' >&2; exit 2"}
    hooks["hooks"]["PreToolUse"].append({"matcher": "delete", "hooks": [no]})
    (careful.folder / "hooks.json").write_text(json.dumps(hooks))
    calls = [Call("pay", {"sum": 5}, result="paid"), Call("delete", {}, result="gone")]
    with careful, httpx.Client(base_url=careful.base, headers=careful.headers) as api:
        api.post("/v1/sessions", json={"session_id": "s"}).raise_for_status()
        visitor = Visitor(browser, careful)
        visitor.open(place_of("s"))
        ask(api, "s", Say("I will do both.", calls=calls), Say("Neither."))
        visitor.see("approval-reason").fill("too much", timeout=WAIT_MS)
        visitor.see("deny").click()
        expect(visitor.see("message").last).to_contain_text("Neither.", timeout=WAIT_MS)
        for card, told in (
            (visitor.see("tool-call").nth(0), "Denied: too much"),
            (visitor.see("tool-call").nth(1), "A hook refused it: echo 'not here <i>'"),
        ):
            expect(card.locator("summary").first).to_contain_text("refused")
            card.locator("summary").first.click()
            expect(card.get_by_test_id("verdict")).to_contain_text(told, timeout=WAIT_MS)
            expect(card.get_by_test_id("ran-with")).to_have_count(0)
        visitor.shoot("approval-refused")
        with visitor.page.expect_download() as download:
            visitor.see("session-menu").click()
            visitor.see("export").click()
            visitor.see("export-md").click()
        assert "Denied: too much" in Path(download.value.path()).read_text()
        assert visitor.complaints == []


HURT = "(SELECT number FROM sessions WHERE session_id = 'hurt')"


def damage(folder: Path, statement: str) -> None:
    connection = apsw.Connection(str(folder / "sessions.db"))
    connection.execute(statement)
    connection.close()


def test_an_unrecoverable_session_says_why_and_is_opened_again(
    browser: Browser, server: ServerProcess
) -> None:
    server.stop()
    store_sessions(server.folder, {"hurt": long_talk(30), "well": long_talk(1)})
    where = f"session = {HURT} AND seq = 20"
    damage(server.folder, f"CREATE TABLE kept AS SELECT raw FROM entries WHERE {where}")
    damage(server.folder, f"UPDATE entries SET raw = x'7b22' WHERE {where}")
    server.start()
    visitor = Visitor(browser, server)
    visitor.open(place_of("hurt"))
    shown = visitor.see("unrecoverable")
    expect(shown).to_be_visible(timeout=WAIT_MS)
    expect(visitor.page.locator("main")).to_contain_text("seq 20")
    expect(shown).to_contain_text("perdure salvage hurt hurt-salvaged")
    visitor.see("reopen").click()
    expect(visitor.see("notice")).to_contain_text("seq 20", timeout=WAIT_MS)
    item = visitor.page.locator('[data-testid="session-item"][data-session-id="hurt"]')
    expect(item).to_have_attribute("data-status", "unrecoverable", timeout=WAIT_MS)
    visitor.shoot("unrecoverable")
    visitor.page.locator('[data-session-id="well"] a').click()
    expect(visitor.see("message").first).to_contain_text("question 0", timeout=WAIT_MS)

    item.locator("a").click()
    expect(shown).to_be_visible(timeout=WAIT_MS)
    damage(server.folder, f"UPDATE entries SET raw = (SELECT raw FROM kept) WHERE {where}")
    visitor.see("reopen").click()
    expect(visitor.see("message").last).to_contain_text("answer 29", timeout=WAIT_MS)
    expect(item).to_have_attribute("data-status", "idle", timeout=WAIT_MS)
    assert visitor.complaints == []


EVIL = "<img src=x onerror=alert(1)><script>alert(1)</script> ``` fence"
LONG = "long output\n" * 20_000


HARMLESS = """() => [...document.querySelectorAll("*")].every(element =>
  element.localName !== "script" &&
  [...element.attributes].every(({ name }) => !/^on/.test(name)))"""


def export(page: Page, kind: str) -> Path:
    page.get_by_test_id("session-menu").click()
    page.get_by_test_id("export").click()
    with page.expect_download() as download:
        page.get_by_test_id(f"export-{kind}").click()
    expect(page.get_by_test_id("export-dialog")).to_have_count(0, timeout=WAIT_MS)
    return Path(download.value.path())


def test_a_session_is_exported_as_lines_as_markdown_and_as_one_html_file(
    browser: Browser, server: ServerProcess, tmp_path: Path
) -> None:
    server.stop()
    said = [
        Message("user", (Text("ask " + EVIL), File("image/png", data=PIXEL, name="dot.png"))),
        Message("assistant", (Reasoning("hm"), Text(f"# Title\n\n{EVIL}"), ToolCall("c", "run"))),
        Message("tool", (ToolResult("c", (Text(LONG),), name="run"),)),
        Message("assistant", (Text("**done**"),), end="stopped"),
    ]
    more = [Message("user", (Text(f"again {n}"),)) for n in range(500)]
    store_sessions(server.folder, {"s/1": chain([*said, *more])})
    server.start()
    visitor = Visitor(browser, server)
    visitor.open(place_of("s/1"))
    page = visitor.page
    expect(visitor.see("message").last).to_contain_text("again 499", timeout=WAIT_MS)

    lines = export(page, "jsonl").read_bytes().split(b"\n")
    assert [read_line(line).seq for line in lines[1:-1]] == list(range(1, 505))

    markdown = export(page, "md").read_text()
    assert "# Title" in markdown
    assert LONG in markdown
    assert "again 499" in markdown

    html = export(page, "html").read_text()
    file = tmp_path / "session.html"
    file.write_text(html)
    reader = browser.new_context(offline=True).new_page()
    asked: list[str] = []
    reader.on("request", lambda request: asked.append(request.url))
    reader.on("dialog", lambda dialog: asked.append(dialog.message))
    reader.goto(file.as_uri())
    expect(reader.get_by_text("again 499")).to_be_attached()
    expect(reader.get_by_role("heading", name="Title")).to_be_visible()
    expect(reader.get_by_text("Stopped here")).to_be_visible()
    expect(reader.locator("img")).to_have_count(1)
    assert reader.evaluate("document.querySelector('img').naturalWidth") == 1
    reader.locator("summary", has_text="run").click()
    assert LONG[:1000] in reader.locator("details[open]").inner_text()
    assert reader.evaluate(HARMLESS)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    Visitor.picture(reader, "export-html")
    assert visitor.complaints == []


def test_a_session_that_is_not_there_is_not_taken_for_damaged(
    visit: Callable[..., Visitor],
) -> None:
    visitor = visit(place_of("nowhere"))
    expect(visitor.see("session-problem")).to_contain_text("nowhere", timeout=WAIT_MS)
    expect(visitor.see("reopen")).to_have_count(0)

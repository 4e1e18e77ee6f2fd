"""What a person does in a conversation: the queue, branches, forks, files; all by keys as well."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from perdure.testing import Call, Hang, Say, Wait, write_script
from tests.page.test_transcript import PIXEL
from tests.page.visitor import WAIT_MS, Visitor, place_of, rows, say
from tests.page.world import ask, path_ids, until
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

Visit = Callable[..., Visitor]


def start(api: httpx.Client, session_id: str, *texts: str) -> list[str]:
    """A session in which these were said and answered; the ids of what was said."""
    api.post("/v1/sessions", json={"session_id": session_id}).raise_for_status()
    ids = []
    for text in texts:
        ids.append(ask(api, session_id, text=text))
        until(api, session_id, "idle")
    return ids


def test_pending_messages_are_edited_discarded_held_and_run(
    visit: Visit, api: httpx.Client
) -> None:
    start(api, "s")
    visitor = visit(place_of("s"))
    page = visitor.page
    say(page, write_script(Say("at work"), Hang()))
    expect(visitor.see("stop")).to_be_visible(timeout=WAIT_MS)
    for text in ("first", "second", "third"):
        say(page, text)
        expect(visitor.see("composer")).to_have_value("", timeout=WAIT_MS)
    queued = visitor.see("queued")
    expect(queued).to_have_count(3, timeout=WAIT_MS)
    queued.nth(1).get_by_test_id("queued-discard").click()
    expect(queued).to_have_count(2)
    queued.nth(0).get_by_test_id("queued-edit").click()
    visitor.see("queued-field").fill("first, said better")
    page.reload()  # the edit survives, as every draft does
    expect(visitor.see("queued-field")).to_have_value("first, said better", timeout=WAIT_MS)
    visitor.see("queued-save").click()
    expect(queued.nth(0)).to_contain_text("first, said better", timeout=WAIT_MS)
    expect(queued.nth(1)).to_contain_text("third")
    visitor.shoot("conversation-queue")

    visitor.see("stop").click()
    expect(visitor.see("turn-state")).to_have_attribute("data-status", "stopped", timeout=WAIT_MS)
    expect(visitor.see("queue")).to_contain_text("held")
    visitor.see("go-on").click()
    expect(visitor.see("queue")).to_have_count(0, timeout=WAIT_MS)
    until(api, "s", "idle")
    expect(visitor.see("message").last).to_contain_text("third", timeout=WAIT_MS)
    said = visitor.see("message").all_inner_texts()
    assert [text for text in said if text in {"first, said better", "second", "third"}] == [
        "first, said better",
        "first, said better",
        "third",
        "third",
    ]


def test_a_pending_message_with_a_long_text_and_a_big_picture_is_edited(
    visit: Visit, api: httpx.Client
) -> None:
    start(api, "s")
    ask(api, "s", Say("at work"), Hang())
    picture = base64.b64encode(PIXEL + bytes(100_000)).decode()
    file = {"type": "file", "media_type": "image/png", "name": "big.png", "data": picture}
    long = "word " * 20_000
    parts = [{"type": "text", "text": long}, file]
    api.post("/v1/sessions/s/messages", json={"parts": parts}).raise_for_status()
    visitor = visit(place_of("s"))
    expect(visitor.see("queued")).to_contain_text("big.png", timeout=WAIT_MS)
    visitor.see("queued-edit").click()
    expect(visitor.see("queued-field")).to_have_value(long, timeout=WAIT_MS)
    visitor.see("queued-field").fill("said shorter")
    visitor.see("queued-save").click()
    expect(visitor.see("queued")).to_contain_text("said shorter big.png", timeout=WAIT_MS)
    _, kept = api.get("/v1/sessions/s").json()["queued"][0]["parts"]
    assert api.get(kept["href"]).content == PIXEL + bytes(100_000)


def test_a_message_interrupts_the_running_turn(visit: Visit, api: httpx.Client) -> None:
    start(api, "s")
    visitor = visit(place_of("s"))
    say(visitor.page, write_script(Say("never done"), Hang()))
    expect(visitor.see("stop")).to_be_visible(timeout=WAIT_MS)
    visitor.see("composer").fill("something else")
    visitor.see("composer").press("Control+Enter")
    expect(visitor.see("message").last).to_contain_text("something else", timeout=WAIT_MS)
    expect(visitor.see("stop")).to_have_count(0, timeout=WAIT_MS)
    assert rows(visitor.page) == path_ids(api, "s")


def test_a_message_steers_a_loop_that_lets_it(visit: Visit, api: httpx.Client) -> None:
    start(api, "s")
    visitor = visit(place_of("s"))
    slow = Call("look", output=["a\n"], duration_s=2.5)
    say(visitor.page, write_script(Say("first a look", calls=[slow])))
    expect(visitor.see("tool-call")).to_have_attribute("data-state", "running", timeout=WAIT_MS)
    visitor.see("composer").fill("and mind the gap")
    visitor.see("steer").click()
    expect(visitor.see("notice")).to_contain_text("joins the running turn", timeout=WAIT_MS)
    expect(visitor.see("message").nth(2)).to_contain_text("and mind the gap", timeout=WAIT_MS)
    until(api, "s", "idle")
    entries = api.get("/v1/sessions/s/entries", params={"limit": 100}).json()["entries"]
    assert [each["policy"] for each in entries if each["type"] == "message_queued"] == ["steer"]
    expect(visitor.see("stop")).to_have_count(0, timeout=WAIT_MS)
    assert rows(visitor.page) == path_ids(api, "s")


def test_a_loop_that_cannot_be_steered_gets_the_message_after(
    browser: Browser, tmp_path: Path
) -> None:
    with ServerProcess(tmp_path, loop="shell") as server:
        visitor = Visitor(browser, server)
        visitor.open()
        visitor.see("new-session").click()
        say(visitor.page, "sleep 3; echo slept")
        expect(visitor.see("stop")).to_be_visible(timeout=WAIT_MS)
        visitor.see("composer").fill("echo afterwards")
        visitor.see("steer").click()
        expect(visitor.see("notice")).to_contain_text("cannot be steered", timeout=WAIT_MS)
        expect(visitor.see("queued")).to_contain_text("echo afterwards", timeout=WAIT_MS)
        visitor.see("composer").fill("a draft")
        expect(visitor.see("steer")).to_have_count(0)
        expect(visitor.see("tool-output").last).to_contain_text("afterwards", timeout=WAIT_MS)
        assert visitor.complaints == []


def test_an_earlier_message_is_edited_and_the_branches_are_walked(
    visit: Visit, api: httpx.Client
) -> None:
    ids = start(api, "s", "one", "two", "three")
    first = path_ids(api, "s")
    visitor = visit(place_of("s"))
    page = visitor.page
    row = page.locator(f'[data-row="{ids[1]}"]')
    row.hover()
    row.get_by_test_id("edit-message").click()
    visitor.see("edit-field").fill("two, otherwise")
    visitor.shoot("conversation-edit")
    visitor.see("edit-send").click()
    expect(visitor.see("message").last).to_contain_text("two, otherwise", timeout=WAIT_MS)
    until(api, "s", "idle")
    second = path_ids(api, "s")
    assert second[:2] == first[:2]
    expect(visitor.see("transcript")).not_to_contain_text("three")

    branches = visitor.see("branches")
    expect(branches).to_contain_text("2 / 2", timeout=WAIT_MS)
    seqs = api.get("/v1/sessions/s").json()["last_seq"]
    visitor.see("branch-before").click()
    expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
    expect(branches).to_contain_text("1 / 2")
    expect(visitor.see("transcript")).to_contain_text("three")
    assert rows(page) == first
    assert api.get("/v1/sessions/s").json()["last_seq"] == seqs  # looking changes nothing
    visitor.shoot("conversation-reading")

    visitor.see("branch-next").click()
    expect(visitor.see("reading-bar")).to_have_count(0, timeout=WAIT_MS)
    assert rows(page) == second
    visitor.see("branch-before").click()
    say(page, "four")  # goes on from the branch that is read
    expect(visitor.see("message").last).to_contain_text("four", timeout=WAIT_MS)
    expect(visitor.see("reading-bar")).to_have_count(0)
    until(api, "s", "idle")
    assert path_ids(api, "s")[: len(first)] == first
    expect(visitor.see("message")).to_have_count(len(first) + 2, timeout=WAIT_MS)
    assert rows(page) == path_ids(api, "s")


def test_an_interrupted_attempt_stays_within_reach(
    visit: Visit, api: httpx.Client, server: ServerProcess
) -> None:
    start(api, "s")
    visitor = visit(place_of("s"))
    script = write_script(Say("a first attempt"), Wait(1.5), Say("to the end"))
    say(visitor.page, script)
    expect(visitor.see("message").last).to_contain_text("a first attempt", timeout=WAIT_MS)
    server.kill()
    server.start()
    expect(visitor.see("turn-state")).to_have_attribute(
        "data-status", "interrupted", timeout=WAIT_MS
    )
    visitor.shoot("conversation-interrupted")
    visitor.see("resend").click()
    expect(visitor.see("message").last).to_contain_text("to the end", timeout=WAIT_MS)
    expect(visitor.see("branches")).to_contain_text("2 / 2", timeout=WAIT_MS)
    now = rows(visitor.page)
    visitor.see("branch-before").click()
    expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("message").last).to_contain_text("a first attempt")
    assert rows(visitor.page)[0] == now[0]
    visitor.see("reading-back").click()
    assert rows(visitor.page) == now


def test_a_session_is_forked_here_and_compacted(visit: Visit, api: httpx.Client) -> None:
    ids = start(api, "s", *(f"word {n}" for n in range(7)))
    visitor = visit(place_of("s"))
    page = visitor.page
    row = page.locator(f'[data-row="{ids[2]}"]')
    row.hover()
    row.get_by_test_id("fork-here").click()
    visitor.see("fork-id").fill("child/ü")
    visitor.see("fork-confirm").click()
    expect(page.get_by_role("heading", name="child/ü")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("message").last).to_contain_text("word 2", timeout=WAIT_MS)
    assert rows(page) == path_ids(api, "s")[:5]
    expect(page.get_by_text("forked from")).to_be_visible()
    item = page.locator('[data-testid="session-item"][data-session-id="s"]')
    expect(item).to_contain_text("1 fork")
    item.locator("a").click()
    expect(visitor.see("message").last).to_contain_text("word 6", timeout=WAIT_MS)
    visitor.see("session-menu").click()
    visitor.see("compact").click()
    expect(visitor.see("aside")).to_contain_text("summary", timeout=WAIT_MS)
    expect(visitor.see("message").first).to_contain_text("word 0")


def test_the_map_shows_where_branches_part(visit: Visit, api: httpx.Client) -> None:
    ids = start(api, "s", "one", "two", "three")
    parent = api.get("/v1/sessions/s/transcript").json()["entries"][2]["parent_id"]
    api.post("/v1/sessions/s/branch", json={"entry_id": parent}).raise_for_status()
    ask(api, "s", text="two, otherwise")
    until(api, "s", "idle")
    visitor = visit(place_of("s", "map"))
    stops = visitor.see("map-stop")
    expect(stops.filter(has_text="two, otherwise").first).to_be_visible(timeout=WAIT_MS)
    on_path = visitor.page.locator('[data-testid="map-stop"][data-on-path="true"]')
    shown = [stop.get_attribute("data-entry-id") for stop in on_path.all()]
    assert ids[0] in shown
    assert ids[1] not in shown
    expect(visitor.see("map")).to_contain_text("2 branches")
    visitor.shoot("conversation-map")
    # It grows while it is looked at.
    ask(api, "s", text="two, once more")
    expect(stops.filter(has_text="two, once more").first).to_be_visible(timeout=WAIT_MS)
    visitor.page.locator(f'[data-entry-id="{ids[2]}"] > a').click()
    expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.page.locator(f'.row.target [data-entry-id="{ids[2]}"]')).to_be_in_viewport()


def test_what_is_done_with_a_session_is_done_with_the_branch_that_is_shown(
    visit: Visit, api: httpx.Client
) -> None:
    ids = start(api, "s", "one", "two")
    first = path_ids(api, "s")
    api.post("/v1/sessions/s/branch", json={"entry_id": first[1]}).raise_for_status()
    ask(api, "s", text="two, otherwise")
    until(api, "s", "idle")
    visitor = visit(place_of("s"))
    way = visitor.see("branches")
    expect(way).to_be_visible(timeout=WAIT_MS)
    before = way.bounding_box()
    visitor.see("branch-before").click()
    expect(visitor.see("reading-bar")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.page.locator(f'[data-row="{ids[1]}"]')).to_be_visible()
    after = way.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(before["y"] - after["y"]) < 2, "the way to the next branch moves under the pointer"
    visitor.shoot("conversation-other-branch")
    visitor.see("session-menu").click()
    visitor.see("fork").click()
    visitor.see("fork-id").fill("of what is shown")
    visitor.see("fork-confirm").click()
    expect(visitor.page).to_have_url(re.compile("of%20what%20is%20shown"), timeout=WAIT_MS)
    expect(visitor.see("message")).to_have_count(4, timeout=WAIT_MS)
    assert rows(visitor.page) == first
    visitor.shoot("conversation-forked-branch")


def test_what_goes_wrong_in_a_dialog_is_said_in_it_and_stays_behind(
    visit: Visit, api: httpx.Client
) -> None:
    start(api, "s", "one")
    start(api, "taken", "two")
    visitor = visit(place_of("s"))
    expect(visitor.see("message").first).to_be_visible(timeout=WAIT_MS)
    visitor.see("session-menu").click()
    visitor.see("fork").click()
    visitor.see("fork-id").fill("taken")
    visitor.see("fork-confirm").click()
    expect(visitor.see("dialog-problem")).to_contain_text("taken", timeout=WAIT_MS)
    expect(visitor.see("notice")).to_have_count(0)
    visitor.shoot("dialog-problem")
    visitor.page.keyboard.press("Escape")
    expect(visitor.see("fork-dialog")).to_have_count(0)
    expect(visitor.see("notice")).to_have_count(0)
    # An error that was said on the page is not said of the next place.
    visitor.page.goto(f"{visitor.server.base}/{place_of('s', 'entry', 'nowhere')}")
    expect(visitor.see("notice")).to_contain_text("nowhere", timeout=WAIT_MS)
    visitor.shoot("notice")
    visitor.page.goto(f"{visitor.server.base}/#/workflows")
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("notice")).to_have_count(0)


PASTE = """([name, type, data]) => {
  const transfer = new DataTransfer();
  const bytes = Uint8Array.from(atob(data), c => c.charCodeAt(0));
  transfer.items.add(new File([bytes], name, { type }));
  const field = document.querySelector("[data-testid=composer]");
  field.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true }));
}"""
DROP = """([where, ...files]) => {
  const transfer = new DataTransfer();
  for (const [name, type, data] of files) {
    const content = typeof data === "number" ? new Uint8Array(data) : data;
    transfer.items.add(new File([content], name, { type }));
  }
  const target = document.querySelector(where);
  return ["dragover", "drop"].map(type => {
    const event = new DragEvent(type, {
      dataTransfer: transfer, bubbles: true, cancelable: true,
    });
    target.dispatchEvent(event);
    return event.defaultPrevented;
  });
}"""


def test_files_are_pasted_dropped_and_chosen_and_drafts_survive(
    visit: Visit, api: httpx.Client, tmp_path: Path
) -> None:
    start(api, "s")
    visitor = visit(place_of("s"))
    page = visitor.page
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    page.evaluate(PASTE, ["dot.png", "image/png", base64.b64encode(PIXEL).decode()])
    expect(visitor.see("attachments").locator("li")).to_have_count(1, timeout=WAIT_MS)
    page.evaluate(DROP, [".composer", ["notes.txt", "text/plain", "some notes"]])
    expect(visitor.see("attachments").locator("li")).to_have_count(2, timeout=WAIT_MS)
    chosen = tmp_path / "page.html"
    chosen.write_text("<script>alert(1)</script>")
    visitor.see("file-picker").set_input_files(chosen)
    expect(visitor.see("attachments").locator("li")).to_have_count(3, timeout=WAIT_MS)
    visitor.see("composer").fill("look at these")
    page.wait_for_timeout(200)
    page.reload()
    expect(visitor.see("composer")).to_have_value("look at these", timeout=WAIT_MS)
    expect(visitor.see("attachments").locator("li")).to_have_count(3, timeout=WAIT_MS)
    page.get_by_label("Take off notes.txt").click()
    expect(visitor.see("attachments").locator("li")).to_have_count(2)
    visitor.shoot("conversation-attachments")
    visitor.see("send").click()
    message = visitor.see("message").first
    expect(message.locator("img[alt='dot.png']")).to_be_visible(timeout=WAIT_MS)
    with page.expect_download() as download:
        message.get_by_role("button", name="page.html").click()
    assert Path(download.value.path()).read_text() == "<script>alert(1)</script>"
    page.reload()
    expect(message).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("attachments")).to_have_count(0)
    expect(visitor.see("composer")).to_have_value("")


def test_a_file_is_taken_wherever_it_is_dropped_and_what_does_not_fit_is_named(
    visit: Visit, api: httpx.Client
) -> None:
    start(api, "s", "one")
    visitor = visit(place_of("s"))
    page = visitor.page
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    files = [["small.txt", "text/plain", "a"], ["huge.bin", "", 23 * 1024 * 1024], ["b", "", "b"]]
    # Not taken, the browser would leave the page for the file.
    assert page.evaluate(DROP, ["[data-testid=transcript]", *files]) == [True, True]
    expect(visitor.see("attachments").locator("li")).to_have_count(2, timeout=WAIT_MS)
    expect(visitor.see("attachments").locator("li").first).to_have_text("small.txt1 B")
    expect(visitor.see("notice")).to_contain_text("huge.bin")
    expect(visitor.see("notice")).not_to_contain_text("small.txt")
    assert page.evaluate(DROP, [".sidebar", ["list.txt", "", "c"]]) == [True, True]
    expect(visitor.see("attachments").locator("li")).to_have_count(3, timeout=WAIT_MS)
    visitor.shoot("conversation-dropped")
    # What is still being read goes along too, and takes nothing of what comes after it.
    big = ["big.bin", "", 12 * 1024 * 1024]
    page.evaluate(DROP, ["main", big])
    page.evaluate(DROP, ["main", ["after.txt", "", "d"]])
    visitor.see("composer").press("Enter")
    expect(visitor.see("message").nth(2).locator(".file")).to_have_count(5, timeout=WAIT_MS)
    expect(visitor.see("attachments")).to_have_count(0)
    page.goto(f"{visitor.server.base}/#/routines")
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate(DROP, ["main", ["list.txt", "", "c"]]) == [True, True]


def test_a_message_with_a_long_text_and_a_big_picture_is_said_otherwise_with_all_of_it(
    visit: Visit, api: httpx.Client
) -> None:
    start(api, "s")
    picture = base64.b64encode(PIXEL + bytes(100_000)).decode()
    file = {"type": "file", "media_type": "image/png", "name": "big.png", "data": picture}
    long = "word " * 20_000
    parts = [{"type": "text", "text": long}, file]
    api.post("/v1/sessions/s/messages", json={"parts": parts}).raise_for_status()
    until(api, "s", "idle")
    visitor = visit(place_of("s"))
    row = visitor.page.locator(".row.user").first
    row.hover()
    row.get_by_test_id("edit-message").click()
    expect(visitor.see("edit-field")).to_have_value(long, timeout=WAIT_MS)
    expect(visitor.see("edit-form")).to_contain_text("1 file of it goes along")
    visitor.see("edit-field").fill("said shorter")
    visitor.see("edit-send").click()
    expect(visitor.see("message").first).to_contain_text("said shorter", timeout=WAIT_MS)
    until(api, "s", "idle")
    newest = api.get("/v1/sessions/s/transcript").json()["entries"][0]
    whole = api.get(newest["parts"][1]["href"]).content
    assert whole == PIXEL + bytes(100_000)


def focus(page: Page) -> str:
    found: str = page.evaluate(
        "document.activeElement.closest('[data-testid]')?.dataset.testid ?? ''"
    )
    return found


def test_everything_is_done_by_keys(visit: Visit, api: httpx.Client) -> None:
    visitor = visit()
    page = visitor.page
    keys = page.keyboard
    expect(visitor.see("connection")).to_have_attribute("data-state", "live", timeout=WAIT_MS)
    keys.press("n")
    expect(visitor.see("composer")).to_be_focused(timeout=WAIT_MS)
    keys.type("typed by hand")
    keys.press("Shift+Enter")
    keys.type("on two lines")
    keys.press("Enter")
    expect(visitor.see("message")).to_have_count(2, timeout=WAIT_MS)
    expect(visitor.see("message").first).to_contain_text("typed by hand\non two lines")
    keys.press("Escape")
    keys.press("k")
    assert focus(page) == "message"
    keys.press("Tab")  # what can be done with the message comes next
    assert page.evaluate("document.activeElement.closest('.message-actions') !== null")
    keys.press("e")
    expect(visitor.see("everything")).to_be_visible(timeout=WAIT_MS)
    keys.press("m")
    expect(visitor.see("map")).to_be_visible(timeout=WAIT_MS)
    keys.press("c")
    expect(visitor.see("transcript")).to_be_visible()
    keys.press("i")
    expect(visitor.see("composer")).to_be_focused()
    keys.press("Escape")
    keys.press("?")
    expect(visitor.see("keys")).to_be_visible()
    visitor.shoot("keys")
    keys.press("Escape")
    expect(visitor.see("keys")).to_have_count(0)
    keys.press("/")
    expect(visitor.see("filter")).to_be_focused()
    keys.press("Tab")
    keys.press("Tab")
    keys.press("Tab")
    keys.press("ArrowDown")
    visitor.see("session-menu").focus()
    keys.press("Enter")
    keys.press("ArrowUp")
    keys.press("Enter")
    expect(visitor.see("delete-dialog")).to_be_visible()
    expect(visitor.see("losses")).to_contain_text("5 entries of its journal", timeout=WAIT_MS)
    keys.press("Escape")
    expect(visitor.see("delete-dialog")).to_have_count(0)
    assert focus(page) == "session-menu"

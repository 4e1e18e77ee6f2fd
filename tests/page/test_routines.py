"""Routines on the page: made, watched, changed and deleted, and their history read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect

from perdure.testing import Fail, Say, write_script
from tests.page.conftest import SCRIPTED
from tests.page.test_quality import AXE, PHONE, WIDE, check_with_axe
from tests.page.visitor import WAIT_MS, Visitor
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

PLACE = "#/routines"
SAY = write_script(Say("done"))
FILE = """
[routines.nightly]
cron = "30 2 * * *"
zone = "Europe/Berlin"
text = "Write the report of the day."
new_session = true
"""


def make(api: httpx.Client, name: str, text: str = SAY, **fields: Any) -> None:
    if not {"every_s", "at"} & fields.keys():
        fields.setdefault("cron", "0 9 * * 1-5")
    made = api.post("/v1/routines", json={"routine_id": name, "text": text, **fields})
    assert made.status_code == 201, made.text


def run(api: httpx.Client, name: str) -> None:
    """Asks for a run, and waits for its end."""
    asked = api.post(f"/v1/routines/{name}/run").json()["run_id"]
    deadline = time.monotonic() + 20
    while True:
        runs = api.get(f"/v1/routines/{name}/runs").json()["runs"]
        if any(each["run_id"] == asked and each["ended_at"] for each in runs):
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server with a routine in its file."""
    (tmp_path / "perdure.toml").write_text(FILE)
    with ServerProcess(tmp_path, loop=SCRIPTED) as running:
        yield running


def test_due_times_are_shown_before_anything_is_stored(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE, timezone_id="Europe/Berlin")
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    visitor.see("routine-add").click()
    expect(visitor.see("routine-zone")).to_have_value("Europe/Berlin")
    preview = visitor.see("routine-preview")
    expect(preview.locator("li")).to_have_count(5, timeout=WAIT_MS)
    visitor.see("routine-cron").fill("61 9 * * *")
    expect(preview.locator("output")).to_contain_text("minute", timeout=WAIT_MS)
    expect(preview.locator("li")).to_have_count(0)
    visitor.shoot("routine-wrong")
    visitor.see("when-every").check()
    visitor.see("routine-every").fill("90")
    visitor.see("routine-unit").select_option("minutes")
    expect(preview.locator("output")).to_have_text("Every 90 minutes", timeout=WAIT_MS)
    visitor.see("when-cron").check()
    visitor.see("routine-cron").fill("30 7 * * 1")
    expect(preview.locator("output")).to_have_text(
        "At 07:30 on Monday (Europe/Berlin)", timeout=WAIT_MS
    )
    expect(preview.locator("li").first).to_contain_text("Mon")
    expect(preview.locator("li").first).to_contain_text("07:30")
    assert api.get("/v1/routines").json()["routines"] == []
    visitor.see("routine-text").fill("What is new?")
    visitor.see("routine-id").fill("mondays")
    visitor.see("routine-save").click()
    expect(visitor.see("routine-message")).to_have_text("What is new?", timeout=WAIT_MS)
    expect(visitor.see("next-due").locator("li")).to_have_count(5)
    made = api.get("/v1/routines/mondays").json()
    assert (made["cron"], made["zone"]) == ("30 7 * * 1", "Europe/Berlin")
    assert (made["session_id"], made["status"]) == ("mondays", "enabled")


def test_a_time_that_comes_once_is_by_the_clocks_of_its_zone(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    visitor.see("routine-add").click()
    visitor.see("when-at").check()
    visitor.see("routine-at").fill("2031-03-01T17:30")
    visitor.see("routine-zone").fill("Asia/Tokyo")
    visitor.see("routine-text").fill("Announce it")
    visitor.see("routine-where").select_option("new")
    visitor.see("routine-id").fill("once")
    expect(visitor.see("routine-preview").locator("li")).to_contain_text("05:30", timeout=WAIT_MS)
    visitor.see("routine-save").click()
    expect(visitor.see("routine-status")).to_be_visible(timeout=WAIT_MS)
    made = api.get("/v1/routines/once").json()
    assert made["at"] == "2031-03-01T08:30:00Z"
    assert made["new_session"]
    # And editing it changes what was touched, and nothing else.
    visitor.see("routine-menu").click()
    visitor.see("routine-edit").click()
    expect(visitor.see("routine-at")).to_have_value("2031-03-01T17:30")
    visitor.see("routine-more").locator("summary").click()
    visitor.see("routine-overlap").select_option("queue")
    visitor.see("routine-save").click()
    expect(visitor.see("routine-dialog")).to_have_count(0, timeout=WAIT_MS)
    changed = api.get("/v1/routines/once").json()
    different = {key for key in made if made[key] != changed[key]}
    assert different == {"overlap", "last_seq"}


def test_a_routine_is_run_paused_resumed_and_deleted(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    make(api, "daily", write_script(Say("All is well.")))
    visitor = visit(PLACE)
    page = visitor.page
    visitor.see("routine").locator("a").click()
    expect(page.get_by_text("It has not run yet.")).to_be_visible(timeout=WAIT_MS)
    visitor.see("routine-run").click()
    expect(visitor.see("run")).to_have_attribute("data-status", "succeeded", timeout=WAIT_MS)
    visitor.see("routine-pause").click()
    expect(visitor.see("routine-status")).to_have_text("paused", timeout=WAIT_MS)
    expect(visitor.see("next-due")).to_have_count(0)
    assert api.get("/v1/routines/daily").json()["status"] == "paused"
    visitor.see("routine-resume").click()
    expect(visitor.see("routine-status")).to_have_text("enabled", timeout=WAIT_MS)
    visitor.see("run-link").click()
    expect(visitor.see("message").last).to_contain_text("All is well.", timeout=WAIT_MS)
    page.go_back()
    visitor.see("routine-menu").click()
    visitor.see("routine-delete").click()
    expect(visitor.see("confirm-dialog")).to_contain_text("run history")
    visitor.see("confirm").click()
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    assert api.get("/v1/routines/daily").status_code == 404
    assert api.get("/v1/sessions/daily").status_code == 200


def test_what_others_do_is_seen_without_asking(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    expect(visitor.see("nothing")).to_be_visible(timeout=WAIT_MS)
    make(api, "theirs", every_s=3600)
    row = visitor.see("routine")
    expect(row).to_contain_text("in 1 hour", timeout=WAIT_MS)
    api.patch("/v1/routines/theirs", json={"status": "paused"})
    expect(row).to_have_attribute("data-status", "paused", timeout=WAIT_MS)
    row.locator("a").click()
    expect(visitor.see("routine-message")).to_be_visible(timeout=WAIT_MS)
    run(api, "theirs")
    expect(visitor.see("run")).to_have_count(1, timeout=WAIT_MS)
    api.patch("/v1/routines/theirs", json={"text": write_script(Fail("out of paper"))})
    run(api, "theirs")
    expect(visitor.see("run").first).to_have_attribute("data-status", "failed", timeout=WAIT_MS)
    expect(visitor.see("run").first).to_contain_text("out of paper")
    api.delete("/v1/routines/theirs")
    expect(visitor.see("place-problem")).to_contain_text("not there", timeout=WAIT_MS)


def test_a_routine_that_runs_by_itself_fills_its_history(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    make(api, "ticker", every_s=1)
    visitor = visit(f"{PLACE}/ticker")
    page = visitor.page
    expect(visitor.see("run").first).to_be_visible(timeout=WAIT_MS)
    page.evaluate(
        """() => {
          window.said = [];
          const regions = "[aria-live], [role=status], [role=log], [role=alert], output";
          for (const region of document.querySelectorAll(regions))
            new MutationObserver(() => region.textContent && window.said.push(region.textContent))
              .observe(region, { childList: true, characterData: true, subtree: true });
        }"""
    )
    before = visitor.see("run").count()
    expect(visitor.see("run").nth(before + 2)).to_be_visible(timeout=WAIT_MS)
    assert page.evaluate("window.said") == []


def test_a_long_history_comes_page_by_page(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    make(api, "often")
    for _ in range(35):
        run(api, "often")
    visitor = visit(f"{PLACE}/often")
    expect(visitor.see("run")).to_have_count(30, timeout=WAIT_MS)
    visitor.see("more-runs").click()
    expect(visitor.see("run")).to_have_count(35, timeout=WAIT_MS)
    expect(visitor.see("more-runs")).to_have_count(0)


def test_what_was_written_of_a_routine_is_kept_until_it_is_made(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    page = visitor.page
    visitor.see("routine-add").click()
    visitor.see("routine-text").fill("half a thou")
    visitor.see("routine-cron").fill("5 4 * * *")
    page.reload()
    visitor.see("routine-add").click()
    expect(visitor.see("routine-text")).to_have_value("half a thou")
    expect(visitor.see("routine-cron")).to_have_value("5 4 * * *")
    visitor.see("routine-where").select_option("session")
    visitor.see("routine-session").fill("..")
    visitor.see("routine-save").click()
    expect(visitor.see("routine-problem")).to_contain_text("session_id", timeout=WAIT_MS)
    assert api.get("/v1/routines").json()["routines"] == []
    visitor.see("routine-discard").click()
    visitor.see("routine-add").click()
    expect(visitor.see("routine-text")).to_have_value("")


def test_what_the_file_defines_is_not_edited_here(
    browser: Browser, configured: ServerProcess
) -> None:
    visitor = Visitor(browser, configured)
    visitor.open(f"{PLACE}/nightly")
    expect(visitor.page.get_by_text("in perdure.toml").first).to_be_visible(timeout=WAIT_MS)
    visitor.see("routine-menu").click()
    expect(visitor.see("routine-edit")).to_be_disabled()
    assert visitor.complaints == []


def test_a_hostile_routine_is_only_shown(visit: Callable[..., Visitor], api: httpx.Client) -> None:
    name = "<img src=x onerror=alert(1)>\u202e gnp"
    wide = "w" * 5_000
    text = f"<script>window.hacked = 1</script> [x](javascript:alert(1)) {wide}"
    make(api, name, text, new_session=True)
    make(api, "עברית", "שלום עולם, מה חדש היום?")
    visitor = visit(PLACE)
    page = visitor.page
    expect(visitor.see("routine").first).to_contain_text("<img src=x", timeout=WAIT_MS)
    for row in (0, 1):
        visitor.see("routine").nth(row).locator("a").click()
        expect(visitor.see("routine-message")).to_be_visible(timeout=WAIT_MS)
        wide_px, screen_px = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide_px <= screen_px
        page.go_back()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_axe_finds_nothing(
    browser: Browser, configured: ServerProcess, scheme: str, width: str
) -> None:
    with httpx.Client(base_url=configured.base, headers=configured.headers, timeout=30) as api:
        make(api, "morning", SAY, zone="Europe/Berlin", deadline_s=1800, resends=2)
        make(api, "queue-watch", every_s=900, new_session=True, jitter_s=60)
        make(api, "rests", status="paused")
        run(api, "morning")
        api.patch("/v1/routines/morning", json={"text": write_script(Fail("overloaded"))})
        run(api, "morning")
        words = "What is new since yesterday?\nTell me what needs me, most urgent first."
        api.patch("/v1/routines/morning", json={"text": words})
    more = {"has_touch": True, "is_mobile": True} if width == "phone" else {}
    visitor = Visitor(
        browser,
        configured,
        color_scheme=scheme,
        viewport=PHONE if width == "phone" else WIDE,
        reduced_motion="reduce",
        **more,
    )
    visitor.context.add_init_script(path=AXE)
    visitor.open(PLACE)
    page = visitor.page

    def stands(name: str) -> None:
        page.wait_for_timeout(150)
        check_with_axe(page, name)
        visitor.shoot(f"routines-{width}-{scheme}-{name}")
        wide_px, screen_px = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide_px <= screen_px, f"{name} is wider than the screen"

    expect(visitor.see("routine")).to_have_count(4, timeout=WAIT_MS)
    stands("list")
    visitor.see("routine-add").click()
    visitor.see("routine-more").locator("summary").click()
    expect(visitor.see("routine-preview").locator("li")).to_have_count(5, timeout=WAIT_MS)
    stands("form")
    visitor.see("routine-cron").fill("never")
    expect(visitor.see("routine-preview")).to_have_class(re.compile("wrong"), timeout=WAIT_MS)
    stands("wrong")
    visitor.see("routine-discard").click()
    page.goto(f"{configured.base}/{PLACE}/morning")
    expect(visitor.see("run")).to_have_count(2, timeout=WAIT_MS)
    stands("one")
    visitor.see("routine-menu").click()
    visitor.see("routine-delete").click()
    stands("delete")
    assert visitor.complaints == []


def test_a_routine_is_made_without_a_mouse(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit(PLACE)
    keyboard = visitor.page.keyboard
    visitor.see("routine-add").focus()
    keyboard.press("Enter")
    expect(visitor.see("routine-text")).to_be_focused()
    keyboard.type("Say good morning")
    keyboard.press("Tab")
    expect(visitor.see("when-cron")).to_be_focused()
    keyboard.press("ArrowRight")
    expect(visitor.see("routine-every")).to_be_visible()
    keyboard.press("Tab")
    keyboard.press("Control+A")
    keyboard.type("2")
    keyboard.press("Enter")
    expect(visitor.see("routine-status")).to_be_visible(timeout=WAIT_MS)
    (made,) = api.get("/v1/routines").json()["routines"]
    assert (made["every_s"], made["parts"][0]["text"]) == (7200, "Say good morning")

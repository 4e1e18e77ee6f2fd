"""Loops on the page: what can answer, what is missing, and sessions made with one's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.page.conftest import SCRIPTED
from tests.page.test_quality import AXE, PHONE, WIDE, check_with_axe
from tests.page.visitor import WAIT_MS, Visitor
from tests.serving import ServerProcess

pytestmark = pytest.mark.may_block

FILE = """
[loops.clerk]
kind = "shell"

[loops.far]
kind = "model"
model = "openrouter:a-model"

[runtimes.sandbox]
kind = "subprocess"
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerProcess]:
    """A server with loops and a runtime in its file; one of the loops has no key."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    (tmp_path / "perdure.toml").write_text(FILE)
    with ServerProcess(tmp_path, loop=SCRIPTED) as running:
        yield running


def test_a_session_is_made_with_a_loop_and_a_runtime(
    browser: Browser, configured: ServerProcess
) -> None:
    visitor = Visitor(browser, configured)
    visitor.open()
    visitor.see("new-session-with").click()
    loop = visitor.see("loop-field")
    expect(loop.locator("option", has_text="clerk")).to_have_count(1, timeout=WAIT_MS)
    loop.select_option("far")
    expect(visitor.see("new-session-dialog")).to_contain_text("OPENROUTER_API_KEY")
    loop.select_option("clerk")
    runtime = visitor.see("runtime-field")
    expect(runtime.locator("option", has_text="sandbox")).to_have_count(1, timeout=WAIT_MS)
    runtime.select_option("sandbox")
    visitor.see("new-session-id").fill("mine")
    visitor.shoot("loops-new-session")
    visitor.see("new-session-confirm").click()
    expect(visitor.see("session-loop")).to_contain_text("clerk", timeout=WAIT_MS)
    expect(visitor.see("session-runtime")).to_contain_text("sandbox")
    expect(visitor.see("new-session-dialog")).to_have_count(0)
    with httpx.Client(base_url=configured.base, headers=configured.headers) as api:
        look = api.get("/v1/sessions/mine").json()
    assert (look["loop"], look["runtime"]) == ("clerk", "sandbox")
    visitor.see("composer").fill("echo it is the $((6 * 7))nd")
    visitor.see("send").click()
    expect(visitor.see("transcript")).to_contain_text("it is the 42nd", timeout=WAIT_MS)
    assert visitor.complaints == []


def test_a_loop_that_there_is_not_is_refused_and_what_was_chosen_stays(
    visit: Callable[..., Visitor], api: httpx.Client
) -> None:
    visitor = visit()
    visitor.page.keyboard.press("Shift+N")
    expect(visitor.see("new-session-dialog")).to_be_visible(timeout=WAIT_MS)
    visitor.see("loop-field").select_option(label="another one…")
    visitor.see("loop-name").fill("no.such.module:loop")
    visitor.see("new-session-confirm").click()
    expect(visitor.see("dialog-problem")).to_contain_text("no.such.module", timeout=WAIT_MS)
    expect(visitor.see("loop-name")).to_have_value("no.such.module:loop")
    assert api.get("/v1/sessions").json()["sessions"] == []


def test_one_click_still_makes_a_session(visit: Callable[..., Visitor], api: httpx.Client) -> None:
    visitor = visit()
    visitor.see("new-session").click()
    expect(visitor.see("composer")).to_be_visible(timeout=WAIT_MS)
    expect(visitor.see("session-loop")).to_have_count(0)
    (look,) = api.get("/v1/sessions").json()["sessions"]
    assert look["loop"] is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_axe_finds_nothing(
    browser: Browser, configured: ServerProcess, scheme: str, width: str
) -> None:
    visitor = Visitor(
        browser,
        configured,
        color_scheme=scheme,
        viewport=PHONE if width == "phone" else WIDE,
        reduced_motion="reduce",
    )
    visitor.context.add_init_script(path=AXE)
    visitor.open()
    page = visitor.page

    def stands(name: str) -> None:
        page.wait_for_timeout(150)
        check_with_axe(page, name)
        visitor.shoot(f"loops-{width}-{scheme}-{name}")
        wide_px, screen_px = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide_px <= screen_px, f"{name} is wider than the screen"

    stands("home")
    visitor.see("new-session-with").click()
    expect(visitor.see("loop-field").locator("option", has_text="far")).to_have_count(
        1, timeout=WAIT_MS
    )
    visitor.see("loop-field").select_option("far")
    stands("new")
    page.keyboard.press("Escape")
    visitor.see("place-loops").click()
    far = page.locator("[data-testid=loop][data-name=far]")
    expect(far).to_contain_text("OPENROUTER_API_KEY", timeout=WAIT_MS)
    expect(far.get_by_test_id("loop-use")).to_be_disabled()
    stands("list")
    page.locator("[data-testid=loop][data-name=clerk]").get_by_test_id("loop-use").click()
    expect(visitor.see("session-loop")).to_contain_text("clerk", timeout=WAIT_MS)
    assert visitor.complaints == []

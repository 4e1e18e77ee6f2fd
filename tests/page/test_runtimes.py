"""Runtimes on the page: what is attached, what was lost and why, as it happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.page.conftest import SCRIPTED
from tests.page.test_quality import AXE, PHONE, WIDE, check_with_axe
from tests.page.visitor import WAIT_MS, Visitor
from tests.serving import REPO, ServerProcess

pytestmark = pytest.mark.may_block

FILE = """
[runtimes.builder]
kind = "remote"
lost_after_s = 2

[runtimes.sandbox]
kind = "subprocess"
"""


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that knows three runtimes."""
    (tmp_path / "perdure.toml").write_text(FILE)
    with ServerProcess(tmp_path, loop=SCRIPTED) as running:
        yield running


@contextmanager
def dialed_in(
    server: ServerProcess, workspace: Path, name: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that dials in as this runtime; whatever is left of it is ended."""
    workspace.mkdir()
    env = os.environ | {"PYTHONPATH": str(REPO / "src"), "PERDURE_TOKEN": server.token}
    command = [sys.executable, "-m", "perdure", "runtime", "--connect", server.base]
    command += ["--workspace", str(workspace), "--name", name]
    with (server.folder / "runtime.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=workspace, env=env, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_runtime_is_seen_to_come_and_to_be_lost(
    browser: Browser, configured: ServerProcess, tmp_path: Path
) -> None:
    visitor = Visitor(browser, configured)
    visitor.open("#/runtimes")
    builder = visitor.page.locator("[data-testid=runtime][data-name=builder]")
    expect(visitor.see("runtime")).to_have_count(3, timeout=WAIT_MS)
    expect(builder).to_have_attribute("data-status", "idle")
    workspace = tmp_path / "a <b onclick=x>workspace"
    with dialed_in(configured, workspace, "builder") as process:
        expect(builder).to_have_attribute("data-status", "attached", timeout=WAIT_MS)
        expect(builder).to_contain_text("a <b onclick=x>workspace")
        visitor.shoot("runtimes-attached")
        process.kill()
        process.wait()
        expect(builder).to_have_attribute("data-status", "lost", timeout=WAIT_MS)
    expect(builder.get_by_test_id("runtime-cause")).to_contain_text("Lost")
    visitor.shoot("runtimes-lost")
    with dialed_in(configured, tmp_path / "another", "guest"):
        guest = visitor.page.locator("[data-testid=runtime][data-name=guest]")
        expect(guest).to_have_attribute("data-status", "attached", timeout=WAIT_MS)
    assert visitor.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", ["wide", "phone"])
def test_axe_finds_nothing(
    browser: Browser, configured: ServerProcess, tmp_path: Path, scheme: str, width: str
) -> None:
    visitor = Visitor(
        browser,
        configured,
        color_scheme=scheme,
        viewport=PHONE if width == "phone" else WIDE,
        reduced_motion="reduce",
    )
    visitor.context.add_init_script(path=AXE)
    visitor.open("#/runtimes")
    builder = visitor.page.locator("[data-testid=runtime][data-name=builder]")
    with dialed_in(configured, tmp_path / "first", "builder") as process:
        expect(builder).to_have_attribute("data-status", "attached", timeout=WAIT_MS)
        process.kill()
        process.wait()
        expect(builder).to_have_attribute("data-status", "lost", timeout=WAIT_MS)
    with dialed_in(configured, tmp_path / "second", "guest"):
        guest = visitor.page.locator("[data-testid=runtime][data-name=guest]")
        expect(guest).to_have_attribute("data-status", "attached", timeout=WAIT_MS)
        visitor.see("dial-in").locator("summary").click()
        expect(visitor.page.get_by_text("perdure runtime --connect")).to_be_visible()
        check_with_axe(visitor.page, "runtimes")
        visitor.shoot(f"runtimes-{width}-{scheme}")
        wide_px, screen_px = visitor.page.evaluate(
            "[document.documentElement.scrollWidth, innerWidth]"
        )
        assert wide_px <= screen_px
    assert visitor.complaints == []

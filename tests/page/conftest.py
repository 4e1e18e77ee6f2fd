"""A real browser, and servers for its pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.page.visitor import ARGS, Visitor
from tests.serving import ServerProcess

SCRIPTED = "perdure.testing.scripted_loop:scripted_by_message"


# Of a module and not of the session: its event loop would be in the way of other tests.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(ARGS))
        yield found
        found.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose messages are scripts."""
    with ServerProcess(tmp_path, loop=SCRIPTED) as running:
        yield running


@pytest.fixture
def api(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base, headers=server.headers, timeout=30) as client:
        yield client


@pytest.fixture
def visit(browser: Browser, server: ServerProcess) -> Iterator[Callable[..., Visitor]]:
    """Opens a page of its own in a browser of its own; at the end none of them complains."""
    visitors: list[Visitor] = []

    def make(place: str = "", **context: Any) -> Visitor:
        visitors.append(Visitor(browser, server, **context))
        visitors[-1].open(place)
        return visitors[-1]

    yield make
    for visitor in visitors:
        assert visitor.complaints == []

"""Where a runtime dials, and how long it waits before it tries again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection, serve

from perdure import clock
from perdure.errors import ConfigurationError
from perdure.runtimes.dial import FIRST_WAIT_S, LONGEST_WAIT_S, backoff_s, connect_url, dial
from perdure.runtimes.local import open_local
from perdure.runtimes.serving import Serving


@pytest.mark.parametrize(
    ("url", "begins"),
    [
        ("http://127.0.0.1:8377", "ws://127.0.0.1:8377/v1/runtimes/connect?"),
        ("http://127.0.0.1:8377/?token=secret", "ws://127.0.0.1:8377/v1/runtimes/connect?"),
        ("https://a.example/base/", "wss://a.example/base/v1/runtimes/connect?"),
        ("wss://a.example/v1/runtimes/connect", "wss://a.example/v1/runtimes/connect?"),
        ("http://[::1]:80", "ws://[::1]:80/v1/runtimes/connect?"),
    ],
)
def test_the_address_of_a_server_is_where_it_is_dialed(url: str, begins: str) -> None:
    address = connect_url(url, name="n", life="l", workspace="/w é&x\udcff")
    assert address.startswith(begins)
    assert "secret" not in address
    query = parse_qs(urlsplit(address).query)
    assert query == {"name": ["n"], "life": ["l"], "workspace": ["/w é&x?"]}


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8377", "ftp://a", "http://", "http://a:b@c", "http://a:99999", "http://[::1"],
)
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://HOST"):
        connect_url(url, name="n", life="l", workspace="w")


def test_it_waits_ever_longer_up_to_a_bound_and_never_alike() -> None:
    for attempt in range(40):
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)
        waits = {backoff_s(attempt) for _ in range(20)}
        assert len(waits) > 10
        assert all(longest / 2 <= wait <= longest for wait in waits)


class Hurried(clock.SystemClock):
    """A clock whose sleeps are over at once, and are noted."""

    def __init__(self) -> None:
        self.sleeps: list[float] = []
        self.has_nine = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self.sleeps.append(delay_s)
        if len(self.sleeps) == 9:
            self.has_nine.set()
        await asyncio.sleep(0)


async def test_a_server_that_lets_go_at_once_is_dialed_ever_less_often(tmp_path: Path) -> None:
    async def let_go(connection: ServerConnection) -> None:
        await connection.close()

    hurried = Hurried()
    serving = Serving(await open_local(tmp_path))
    try:
        async with serve(let_go, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with clock.use(hurried):
                dialing = asyncio.create_task(
                    dial(
                        serving,
                        f"http://127.0.0.1:{port}",
                        token="t",
                        name="n",
                        life="l",
                        workspace="w",
                    )
                )
            async with asyncio.timeout(20):
                await hurried.has_nine.wait()
            dialing.cancel()
            await asyncio.wait([dialing])
    finally:
        await serving.close()
    for attempt, slept in enumerate(hurried.sleeps):
        assert slept >= min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt) / 2

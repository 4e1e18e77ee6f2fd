"""Where a runtime dials, and how long it waits before it tries again."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from perdure.errors import ConfigurationError
from perdure.runtimes.dial import FIRST_WAIT_S, LONGEST_WAIT_S, backoff_s, connect_url


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


@pytest.mark.parametrize("url", ["", "127.0.0.1:8377", "ftp://a", "http://", "http://a:b@c"])
def test_what_is_no_address_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http://HOST"):
        connect_url(url, name="n", life="l", workspace="w")


def test_it_waits_ever_longer_up_to_a_bound_and_never_alike() -> None:
    for attempt in range(40):
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**attempt)
        waits = {backoff_s(attempt) for _ in range(20)}
        assert len(waits) > 10
        assert all(longest / 2 <= wait <= longest for wait in waits)

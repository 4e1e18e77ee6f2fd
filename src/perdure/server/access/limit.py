"""How much one principal may ask for, and how often a wrong token may be tried."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure import clock
from perdure.server.problem import Refused

BURST_S = 5
"""Who was quiet for so long may ask for that much at once."""

FAILURES_PER_S, FAILURES_AT_ONCE = 5.0, 100.0
_PLACES = 256
_MOST_KEPT = 4096


class Bucket:
    """`rate` tokens a second run in, up to `size` of them; each request takes one out."""

    __slots__ = ("_at", "_left", "_rate", "_size")

    def __init__(self, rate: float, size: float) -> None:
        self._rate = rate
        self._size = size
        self._left = size
        self._at = clock.monotonic()

    def take(self) -> float:
        """Takes one and returns 0, or returns the seconds until there is one."""
        now = clock.monotonic()
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._rate

    @property
    def is_full(self) -> bool:
        """Whether it is as a new one would be."""
        return self._left + (clock.monotonic() - self._at) * self._rate >= self._size


class BodyLimit:
    """So many bytes of bodies of each principal, in requests that are not answered yet."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: dict[str, int] = {}

    @contextmanager
    def hold(self, principal: str) -> Iterator[Callable[[int], None]]:
        """Counts what one request takes inside the block, by the function that it gives.

        That raises Refused, 429, where it would be too much.
        """
        own = 0

        def take(size: int) -> None:
            nonlocal own
            total = self._held.get(principal, 0) + size
            if total > self._most_bytes:
                detail = (
                    f"{principal!r} is sending {total} bytes in bodies at once, and may send "
                    f"{self._most_bytes}: try again when one of them is answered"
                )
                headers = {"retry-after": "1", "connection": "close"}
                raise Refused(429, "too_many_requests", detail, headers=headers)
            self._held[principal] = total
            own += size

        try:
            yield take
        finally:
            left = self._held.get(principal, 0) - own
            if left > 0:
                self._held[principal] = left
            else:
                self._held.pop(principal, None)


class RequestLimit:
    """So many requests a second of each principal, whatever tokens it has."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._buckets: dict[str, Bucket] = {}

    def take(self, principal: str) -> None:
        """Counts a request.

        Raises:
            Refused: 429, it is one too many now.

        """
        bucket = self._buckets.get(principal)
        if bucket is None:
            if len(self._buckets) >= _MOST_KEPT:
                self._buckets = {n: b for n, b in self._buckets.items() if not b.is_full}
            bucket = self._buckets[principal] = Bucket(self._per_s, self._per_s * BURST_S)
        if wait_s := bucket.take():
            raise too_many(
                f"more than {self._per_s:g} requests a second of {principal!r}; the setting "
                "requests_per_s raises that",
                wait_s,
            )


class FailureLimit:
    """So many tries with a token that does not count, of each place on the network.

    It is in the way of nobody who has a token: that is looked at first. Memory is bounded: places
    share a fixed number of buckets.
    """

    def __init__(self) -> None:
        self._salt = os.urandom(16)
        self._buckets: list[Bucket | None] = [None] * _PLACES

    def take(self, host: str) -> None:
        """Counts a failure of a client at this address.

        Raises:
            Refused: 429, there were too many.

        """
        digest = hashlib.blake2b(_network_of(host).encode(), key=self._salt, digest_size=2)
        place = int.from_bytes(digest.digest(), "big") % _PLACES
        bucket = self._buckets[place]
        if bucket is None:
            bucket = self._buckets[place] = Bucket(FAILURES_PER_S, FAILURES_AT_ONCE)
        if wait_s := bucket.take():
            raise too_many(
                "too many requests with a token that does not count; send one that does", wait_s
            )


def too_many(detail: str, wait_s: float) -> Refused:
    """The refusal of a request that may be sent again after so many seconds."""
    after = str(max(1, math.ceil(wait_s)))
    return Refused(429, "too_many_requests", detail, headers={"retry-after": after})


def _network_of(host: str) -> str:
    """The address, or of IPv6 the network that one client has to itself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))

"""How much is too much: of one principal, and of those who have no token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from perdure import clock
from perdure.server.access.limit import (
    BURST_S,
    FAILURES_AT_ONCE,
    Bucket,
    FailureLimit,
    RequestLimit,
)
from perdure.server.problem import Refused
from perdure.testing import ManualClock
from tests.server.people import make, people
from tests.server.test_app_refusals import check


async def test_a_bucket_gives_what_runs_in_and_no_more() -> None:
    manual = ManualClock()
    with clock.use(manual):
        bucket = Bucket(rate=2, size=3)
        assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]
        await manual.advance(0.25)
        assert bucket.take() == 0.25
        await manual.advance(0.25)
        assert [bucket.take(), bucket.take()] == [0, 0.5]
        await manual.advance(3600)
        assert bucket.is_full
        assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0.5]


async def test_each_principal_has_its_own_share() -> None:
    manual = ManualClock()
    with clock.use(manual):
        limit = RequestLimit(per_s=2)
        for _ in range(2 * BURST_S):
            limit.take("anna")
        with pytest.raises(Refused) as refused:
            limit.take("anna")
        assert (refused.value.status, refused.value.code) == (429, "too_many_requests")
        assert refused.value.headers == {"retry-after": "1"}
        limit.take("bob")
        await manual.advance(0.5)
        limit.take("anna")


async def test_who_was_quiet_is_forgotten() -> None:
    manual = ManualClock()
    with clock.use(manual):
        limit = RequestLimit(per_s=1)
        for n in range(4096):
            limit.take(f"p{n}")
        await manual.advance(60)
        limit.take("another")
        assert len(vars(limit)["_buckets"]) == 1


async def test_failures_take_the_same_memory_however_many_places_they_come_from() -> None:
    with clock.use(ManualClock()):
        limit = FailureLimit()
        for n in range(5000):
            limit.take(f"10.0.{n // 250}.{n % 250}")
        assert len(vars(limit)["_buckets"]) == 256


async def test_one_network_of_ipv6_is_one_place() -> None:
    with clock.use(ManualClock()):
        limit = FailureLimit()
        for n in range(int(FAILURES_AT_ONCE)):
            limit.take(f"2001:db8:1:2::{n:x}")
        with pytest.raises(Refused):
            limit.take("2001:db8:1:2:ffff::1")


async def test_too_many_requests_of_one_are_refused_and_another_is_not_harmed(
    tmp_path: Path,
) -> None:
    async with people(tmp_path, requests_per_s=1) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        again = await here.come("anna")
        await make(anna, "hers")
        answers = [await anna.get("/v1/sessions/hers") for _ in range(8)]
        assert {answer.status_code for answer in answers} == {200, 429}
        check(answers[-1], 429, "too_many_requests")
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 2
        check(await again.get("/v1/sessions"), 429, "too_many_requests")  # another of her tokens
        assert (await bob.get("/v1/sessions")).status_code == 200
        assert (await anna.get("/v1/health")).status_code == 200
        assert (await anna.get("/")).status_code == 200


async def test_nobody_who_has_a_token_is_locked_out_by_those_who_guess(tmp_path: Path) -> None:
    async with people(tmp_path) as here:
        anna = await here.come("anna")
        nobody = await here.with_token("a-guess-that-is-long-enough")
        statuses = [(await nobody.get("/v1/sessions")).status_code for _ in range(200)]
        assert statuses[:90] == [401] * 90
        assert statuses[-1] == 429
        refused: httpx.Response = await nobody.get("/?token=another-guess-0123456789")
        check(refused, 429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await anna.get("/v1/sessions")).status_code == 200  # from the same address
        opened = await nobody.get(f"/?token={here.tokens['anna']}")
        assert opened.status_code == 303
        assert (await here.admin.get("/v1/sessions")).status_code == 200


async def test_the_bodies_of_one_principal_have_a_bound_together_and_anothers_are_not_harmed(
    tmp_path: Path,
) -> None:
    async with people(tmp_path, max_body_bytes=10_000) as here:
        anna, bob = await here.come("anna"), await here.come("bob")
        await make(anna, "hers")
        await make(bob, "his")
        go_on = asyncio.Event()
        begun = asyncio.Semaphore(0)

        async def slow() -> AsyncIterator[bytes]:
            yield b" " * 9_000
            begun.release()
            await go_on.wait()
            yield b'{"text": "hi"}'

        url = "/v1/sessions/hers/messages"
        sending = [asyncio.create_task(anna.post(url, content=slow())) for _ in range(4)]
        for _ in sending:
            await begun.acquire()
        large = {"text": "x" * 8_000}
        for _ in range(100):  # the slow ones may not have come so far
            answer = await anna.post(url, json=large)
            if answer.status_code == 429:
                break
            await asyncio.sleep(0.05)
        check(answer, 429, "too_many_requests")
        assert answer.headers["retry-after"] == "1"
        assert (await bob.post("/v1/sessions/his/messages", json=large)).status_code == 202
        assert (await anna.post(url, json={"text": "x"})).status_code == 202
        go_on.set()
        for each in await asyncio.gather(*sending):
            assert each.status_code == 202
        assert (await anna.post(url, json=large)).status_code == 202
        assert here.server.access.bodies._held == {}
